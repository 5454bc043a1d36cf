"""Rendering: from a tree of sections and params to the text and the tools the model gets. Nothing is changed by it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar, final

from ..errors import PromptError, PromptRenderError
from ..session.protocols import SessionProtocol
from .disclosure import disclosure_tools, note
from .placeholders import Body
from .policy import ToolPolicy
from .section import Condition, fallback_params, has_own, takes_session
from .structured import StructuredOutput
from .tool import Tool
from .tree import BoundTool, Node, Tree
from .type_forms import OutputT
from .visibility import SectionVisibility, VisibilityOverrides

T = TypeVar("T")

Given = Mapping[type[Any], object]
"""The params of a rendering, by their type."""


@final
@dataclass(frozen=True, slots=True)
class RenderedPrompt(Generic[OutputT]):
    """What the model gets: text and tools, fixed at the moment of rendering. `str()` of it is the text.

    Attributes:
        tools: those of the sections that are shown, in the order of declaration, depth first.
        tool_map: the same by name, each with its policies; not to be changed.
        structured_output: the type of the answer, or None when it is plain text.
        summarised: the dotted paths of the sections shown as summaries.
    """

    text: str
    tools: tuple[Tool[Any, Any], ...] = ()
    tool_map: Mapping[str, BoundTool] = field(default_factory=dict[str, BoundTool], repr=False)
    structured_output: StructuredOutput[OutputT] | None = field(default=None, repr=False)
    summarised: tuple[str, ...] = ()
    prompt_name: str = ""
    _read: Callable[[str], str] | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        return self.text

    @property
    def output_type(self) -> type[OutputT] | None:
        """What the answer is parsed into, or None."""
        return None if self.structured_output is None else self.structured_output.output_type

    @property
    def output_schema(self) -> dict[str, Any] | None:
        """The JSON schema of the answer, or None."""
        return None if self.structured_output is None else self.structured_output.schema

    def policies_for(self, tool_name: str) -> tuple[ToolPolicy, ...]:
        """The policies of one of its tools, in the order in which they are asked; KeyError for any other name."""
        return self.tool_map[tool_name].policies

    def read_section(self, section_key: str) -> str:
        """The whole text of a summarised section and all below it; the prompt stays as it is.

        Rendered now, so it shows the session as it is now. KeyError for any other section.
        """
        if self._read is None or section_key not in self.summarised:
            raise KeyError(f"{section_key!r} is no summarised section; there are: {', '.join(self.summarised)}")
        return self._read(section_key)


class Shown(NamedTuple):
    """A section that is in the prompt, as it shows itself there."""

    node: Node
    number: str
    in_full: bool
    params: Any


def render(
    tree: Tree,
    given: Given,
    session: SessionProtocol | None,
    *,
    prompt_name: str,
    output: StructuredOutput[OutputT] | None,
    output_instructions: bool,
) -> RenderedPrompt[OutputT]:
    """Render the tree. `PromptRenderError` when params are missing or a section's own code raises."""
    texts: list[str] = []
    tool_map: dict[str, BoundTool] = {}
    summaries: dict[str, Shown] = {}
    for shown in walk(tree, given, session):
        node = shown.node
        if shown.in_full:
            texts.append(_full_text(shown, session))
            for bound in node.tools:
                tool_map[bound.tool.name] = bound
        else:
            texts.append(_summary_text(shown, session))
            summaries[node.key] = shown
    if summaries:
        for bound in disclosure_tools():
            tool_map[bound.tool.name] = bound
    if output is not None and output_instructions:
        texts.append(output.instructions)

    def read(section_key: str) -> str:
        return _subtree_text(tree, summaries[section_key], given, session)

    return RenderedPrompt(
        "\n\n".join(texts),
        tuple(bound.tool for bound in tool_map.values()),
        tool_map,
        output,
        tuple(summaries),
        prompt_name,
        read if summaries else None,
    )


def offered_tools(tree: Tree, given: Given, session: SessionProtocol | None) -> tuple[Tool[Any, Any], ...]:
    """The tools a rendering would have; asks for params only where a section needs them to know whether it shows."""
    tools: list[Tool[Any, Any]] = []
    summaries = False
    for shown in walk(tree, given, session):
        if shown.in_full:
            tools.extend(bound.tool for bound in shown.node.tools)
        summaries = summaries or not shown.in_full
    return (*tools, *(bound.tool for bound in disclosure_tools())) if summaries else tuple(tools)


def walk(tree: Tree, given: Given, session: SessionProtocol | None, *, inside: Shown | None = None) -> Iterator[Shown]:
    """The sections that are in the prompt, numbered; without what is disabled, or hidden in a summary.

    `inside` walks one section and all below it instead, all of it in full.
    """
    overrides = _visibility_overrides(session)
    index, end = (0, len(tree.nodes)) if inside is None else (inside.node.index, inside.node.end)
    numbers, prefixes = _numbering(inside)
    while index < end:
        node = tree.nodes[index]
        params = _params_of(node, given)
        if not _is_enabled(node, params, session):
            index = node.end
            continue
        depth = len(node.path) - 1
        if len(numbers) == depth:
            numbers.append(0)
        del numbers[depth + 1 :], prefixes[depth + 1 :]
        numbers[depth] += 1
        number = f"{prefixes[depth]}{numbers[depth]}"
        prefixes.append(f"{number}.")
        in_full = inside is not None or _is_full(node, params, overrides, session)
        yield Shown(node, number, in_full, params)
        index = index + 1 if in_full else node.end


def _numbering(inside: Shown | None) -> tuple[list[int], list[str]]:
    """The counters of each level, and what stands before them, just before the first section."""
    if inside is None:
        return [], [""]
    numbers = [int(part) for part in inside.number.split(".")]
    prefixes = ["".join(f"{number}." for number in numbers[:depth]) for depth in range(len(numbers))]
    numbers[-1] -= 1
    return numbers, prefixes


def _visibility_overrides(session: SessionProtocol | None) -> dict[str, SectionVisibility]:
    latest = None if session is None else session[VisibilityOverrides].latest()
    return {} if latest is None else dict(latest.entries)


def _params_of(node: Node, given: Given) -> Any:
    """The section's params, or None when there are none for it."""
    params_type = node.section.params_type
    if params_type is None:
        return None
    found = given.get(params_type)
    return found if found is not None else _guarded(node, "the default of its params", fallback_params, node.section)


def _is_enabled(node: Node, params: Any, session: SessionProtocol | None) -> bool:
    if node.enabled is not None:
        return node.enabled
    section = node.section
    _require_params(node, params, asked=_asks(section.enabled) or has_own(section, "is_enabled"))
    if isinstance(section.enabled, Condition) and not has_own(section, "is_enabled"):
        return bool(_answer(node, "enabled=", section.enabled, params, session))
    # A rule of a subclass, written with the session or without it.
    options = {"session": session} if takes_session(type(section).is_enabled) else {}
    return bool(_guarded(node, "enabled=", section.is_enabled, params, **options))


def _is_full(
    node: Node, params: Any, overrides: Mapping[str, SectionVisibility], session: SessionProtocol | None
) -> bool:
    section = node.section
    found: object = overrides.get(node.key) or node.visibility
    if found is None:
        condition = section.visibility
        assert isinstance(condition, Condition)
        _require_params(node, params, asked=condition.wants_params)
        found = _answer(node, "visibility=", condition, params, session)
    if found is SectionVisibility.FULL:
        return True
    if found is not SectionVisibility.SUMMARY:
        raise _error(node, f"visibility= must give a SectionVisibility, got {found!r}")
    if section.summary_body is None:
        raise _error(node, "it is to be shown as a summary but has none; give it summary=")
    return False


def _full_text(shown: Shown, session: SessionProtocol | None) -> str:
    node, params = shown.node, shown.params
    section = node.section
    if node.override is not None:
        body = _fill(node, node.override, params)
    else:
        _require_params(node, params, asked=node.needs_params)
        body = _checked(
            node, "render_body", _guarded(node, "render_body", section.render_body, params, session=session)
        )
    pieces = [_heading(shown), body]
    if node.has_state and session is not None:
        pieces.append(_checked(node, "render_state", _guarded(node, "render_state", section.render_state, session)))
    return "\n\n".join(piece for piece in pieces if piece)


def _summary_text(shown: Shown, session: SessionProtocol | None) -> str:
    node, params = shown.node, shown.params
    body = node.section.summary_body
    _require_params(node, params, asked=body is not None and bool(body.names))
    summary = _checked(
        node, "render_summary", _guarded(node, "render_summary", node.section.render_summary, params, session=session)
    )
    return f"{_heading(shown)}\n\n{summary}\n\n{note(node.key, has_tools=node.tools_inside)}"


def _subtree_text(tree: Tree, top: Shown, given: Given, session: SessionProtocol | None) -> str:
    return "\n\n".join(_full_text(shown, session) for shown in walk(tree, given, session, inside=top))


def _fill(node: Node, body: Body, params: Any) -> str:
    _require_params(node, params, asked=bool(body.names))
    return body.fill(params)


def _heading(shown: Shown) -> str:
    number = shown.number if "." in shown.number else f"{shown.number}."
    return f"{shown.node.marks} {number} {shown.node.section.title}"


def _asks(condition: object) -> bool:
    return isinstance(condition, Condition) and condition.wants_params


def _require_params(node: Node, params: Any, *, asked: bool) -> None:
    params_type = node.section.params_type
    if asked and params is None and params_type is not None:
        raise _error(
            node, f"it needs a {params_type.__name__}; pass one to bind() or render(), or give it default_params="
        )


def _answer(node: Node, what: str, condition: Condition[T], params: Any, session: SessionProtocol | None) -> T:
    try:
        return condition(params, session)
    except PromptError:
        raise
    except Exception as error:
        said = f"{what} raised {type(error).__name__}: {error}"
        if session is None and condition.needs_session:
            said += "; it takes session, and there is none here: pass one to render(session=...), or expect None"
        raise _error(node, said) from error


def _guarded(node: Node, what: str, function: Callable[..., T], *args: Any, **options: Any) -> T:
    try:
        return function(*args, **options)
    except PromptError:
        raise
    except Exception as error:
        raise _error(node, f"{what} raised {type(error).__name__}: {error}") from error


def _checked(node: Node, what: str, text: object) -> str:
    if not isinstance(text, str):
        raise _error(node, f"{what} must return text, got {type(text).__name__}")
    return text


def _error(node: Node, problem: str) -> PromptRenderError:
    return PromptRenderError(
        f"Section {node.key!r} cannot be rendered: {problem}.",
        section_path=node.path,
        dataclass_type=node.section.params_type,
    )


__all__ = ["Given", "RenderedPrompt", "Shown", "offered_tools", "render", "walk"]
