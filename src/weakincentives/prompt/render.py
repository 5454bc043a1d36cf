"""Rendering: from a tree of sections and params to the text and the tools the model gets. Nothing is changed by it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Generic, NamedTuple, TypeVar, cast, final

from ..content import KINDS_MADE, Content, contents_in
from ..errors import PromptError, PromptRenderError, VisibilityExpansionRequired
from ..results import ToolResult
from ..session import SessionProtocol
from .outline import SectionOutline, outline
from .policy import ToolPolicy
from .section import Condition, fallback_params, has_own, takes_session
from .template import StructuredOutput
from .tool import Tool
from .tool_context import ToolContext
from .tool_metadata import ToolAnnotations
from .tree import BoundTool, SectionNode, SectionTree
from .type_forms import OutputT
from .visibility import SectionVisibility, VisibilityOverrides

T = TypeVar("T")

ParamsByType = Mapping[type[Any], object]
"""The params of a rendering, by their type."""


@final
@dataclass(frozen=True, slots=True)
class RenderedPrompt(Generic[OutputT]):
    """What the model gets: text and tools, fixed at the moment of rendering. `str()` of it is the text.

    Attributes:
        text: the user's message.
        system: what is said in the system's role; empty unless the template has `system=`.
        tools: those of the sections that are shown, in the order of declaration, depth first.
        tool_map: the same by name, each with its policies; not to be changed.
        structured_output: the type of the answer, or None when it is plain text.
        summarised: the dotted paths of the sections shown as summaries.
        attachments: the images and documents in the params of the sections that are shown in full, in order, each once.
            They go with the user's message, also those of sections in the system's role.
    """

    text: str
    tools: tuple[Tool[Any, Any], ...] = ()
    tool_map: Mapping[str, BoundTool] = field(default_factory=dict[str, BoundTool], repr=False)
    structured_output: StructuredOutput[OutputT] | None = field(default=None, repr=False)
    summarised: tuple[str, ...] = ()
    prompt_name: str = ""
    system: str = ""
    attachments: tuple[Content, ...] = ()
    _nodes: tuple[SectionNode, ...] = field(default=(), repr=False, compare=False)
    _shown: Mapping[int, bool] = field(default_factory=dict[int, bool], repr=False, compare=False)
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

    @property
    def sections(self) -> tuple[SectionOutline, ...]:
        """Its sections as a tree, also those that are not shown."""
        return outline(self._nodes, self._shown)

    def policies_for(self, tool_name: str) -> tuple[ToolPolicy, ...]:
        """The policies of one of its tools, in the order in which they are asked; KeyError for any other name."""
        return self.tool_map[tool_name].policies

    def read_section(self, section_key: str) -> str:
        """The whole text of a summarised section and all below it; the prompt stays as it is.

        Rendered now, so it shows the session as it is now. KeyError for any other section.
        """
        if self._read is None or section_key not in self.summarised:
            raise KeyError(f"{section_key!r} is not a summarised section; there are: {', '.join(self.summarised)}")
        return self._read(section_key)


class RenderedSection(NamedTuple):
    """A section that is in the prompt, as it shows itself there."""

    node: SectionNode
    number: str
    in_full: bool
    params: Any


def render(
    tree: SectionTree,
    given: ParamsByType,
    session: SessionProtocol | None,
    *,
    prompt_name: str,
    output: StructuredOutput[OutputT] | None,
    output_instructions: bool,
) -> RenderedPrompt[OutputT]:
    """Render the tree. `PromptRenderError` when params are missing or a section's own code raises."""
    texts: list[str] = []
    system: list[str] = []
    tool_map: dict[str, BoundTool] = {}
    summaries: dict[str, RenderedSection] = {}
    in_full: dict[int, bool] = {}
    attachments: dict[Content, None] = {}
    for shown in walk(tree, given, session):
        node = shown.node
        role = system if node.index < tree.system_end else texts
        in_full[node.index] = shown.in_full
        if shown.in_full:
            role.append(_full_text(shown, session))
            if KINDS_MADE and shown.params is not None:
                attachments.update(dict.fromkeys(_contents_of(shown)))
            for bound in node.tools:
                tool_map[bound.tool.name] = bound
        else:
            role.append(_summary_text(shown, session))
            summaries[node.key] = shown
    if summaries:
        for bound in disclosure_tools():
            tool_map[bound.tool.name] = bound
    if output is not None and output_instructions:
        (system if tree.system_end else texts).append(output.instructions)

    def read(section_key: str) -> str:
        inside = walk(tree, given, session, inside=summaries[section_key])
        return "\n\n".join(_full_text(shown, session) for shown in inside)

    return RenderedPrompt(
        "\n\n".join(texts),
        tuple(bound.tool for bound in tool_map.values()),
        tool_map,
        output,
        tuple(summaries),
        prompt_name,
        "\n\n".join(system),
        tuple(attachments),
        tree.nodes,
        in_full,
        read if summaries else None,
    )


def offered_tools(
    tree: SectionTree, given: ParamsByType, session: SessionProtocol | None
) -> tuple[Tool[Any, Any], ...]:
    """The tools a rendering would have; asks for params only where a section needs them to know whether it shows."""
    tools: list[Tool[Any, Any]] = []
    summaries = False
    for shown in walk(tree, given, session):
        if shown.in_full:
            tools.extend(bound.tool for bound in shown.node.tools)
        summaries = summaries or not shown.in_full
    return (*tools, *(bound.tool for bound in disclosure_tools())) if summaries else tuple(tools)


def walk(
    tree: SectionTree, given: ParamsByType, session: SessionProtocol | None, *, inside: RenderedSection | None = None
) -> Iterator[RenderedSection]:
    """The sections that are in the prompt, numbered for each role; without what is disabled, or hidden in a summary.

    `inside` walks one section and all below it instead, all of it in full.
    """
    overrides = _visibility_overrides(session)
    index, end = (0, len(tree.nodes)) if inside is None else (inside.node.index, inside.node.end)
    numbers, prefixes = _numbering(inside)
    while index < end:
        if index == tree.system_end and inside is None:
            numbers, prefixes = _numbering(None)
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
        yield RenderedSection(node, number, in_full, params)
        index = index + 1 if in_full else node.end


def _numbering(inside: RenderedSection | None) -> tuple[list[int], list[str]]:
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


def _params_of(node: SectionNode, given: ParamsByType) -> Any:
    """The section's params, or None when there are none for it."""
    params_type = node.section.params_type
    if params_type is None:
        return None
    found = given.get(params_type)
    return found if found is not None else _guarded(node, "the default of its params", fallback_params, node.section)


def _is_enabled(node: SectionNode, params: Any, session: SessionProtocol | None) -> bool:
    if node.enabled is not None:
        return node.enabled
    section, condition = node.section, node.section.enabled
    own_rule = has_own(section, "is_enabled")
    wants_params = isinstance(condition, Condition) and condition.wants_params
    _require_params(node, params, asked=wants_params or own_rule)
    if isinstance(condition, Condition) and not own_rule:
        return bool(_answer(node, "enabled=", condition, params, session))
    # A rule of a subclass, written with the session or without it.
    options: dict[str, Any] = {"session": session} if takes_session(type(section).is_enabled) else {}
    return bool(_guarded(node, "enabled=", section.is_enabled, params, **options))


def _is_full(
    node: SectionNode, params: Any, overrides: Mapping[str, SectionVisibility], session: SessionProtocol | None
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


def _full_text(shown: RenderedSection, session: SessionProtocol | None) -> str:
    node, params = shown.node, shown.params
    section = node.section
    if node.override is not None:
        _require_params(node, params, asked=bool(node.override.names))
        body = node.override.fill(params)
    else:
        _require_params(node, params, asked=node.needs_params)
        body = _text(node, "render_body", section.render_body, params, session=session)
    pieces = [_heading(shown), body]
    if node.has_state and session is not None:
        pieces.append(_text(node, "render_state", section.render_state, session))
    return "\n\n".join(piece for piece in pieces if piece)


def _contents_of(shown: RenderedSection) -> tuple[Content, ...]:
    """What a section shows besides text: as its template names it, then what else is in its params."""
    node, params = shown.node, shown.params
    template = node.override or node.section.body
    named = () if template is None else [getattr(params, name, None) for name in template.names]
    return contents_in((*named, params))


def _summary_text(shown: RenderedSection, session: SessionProtocol | None) -> str:
    node, params = shown.node, shown.params
    body = node.section.summary_body
    _require_params(node, params, asked=body is not None and bool(body.names))
    summary = _text(node, "render_summary", node.section.render_summary, params, session=session)
    return f"{_heading(shown)}\n\n{summary}\n\n{_disclosure_note(node.key, has_tools=node.tools_inside)}"


def _heading(shown: RenderedSection) -> str:
    number = shown.number if "." in shown.number else f"{shown.number}."
    return f"{shown.node.marks} {number} {shown.node.section.title}"


def _require_params(node: SectionNode, params: Any, *, asked: bool) -> None:
    params_type = node.section.params_type
    if asked and params is None and params_type is not None:
        raise _error(
            node, f"it needs a {params_type.__name__}; pass one to bind() or render(), or give it default_params="
        )


def _answer(node: SectionNode, what: str, condition: Condition[T], params: Any, session: SessionProtocol | None) -> T:
    hint = ""
    if session is None and condition.needs_session:
        hint = "; it takes session, and there is none here: pass one to render(session=...), or expect None"
    return _guarded(node, what, condition, params, session, hint=hint)


def _guarded(node: SectionNode, what: str, function: Callable[..., T], *args: Any, hint: str = "", **options: Any) -> T:
    try:
        return function(*args, **options)
    except PromptError:
        raise
    except Exception as error:
        raise _error(node, f"{what} raised {type(error).__name__}: {error}{hint}") from error


def _text(node: SectionNode, method: str, function: Callable[..., object], *args: Any, **options: Any) -> str:
    text = _guarded(node, method, function, *args, **options)
    if not isinstance(text, str):
        raise _error(node, f"{method} must return text, got {type(text).__name__}")
    return text


def _error(node: SectionNode, problem: str) -> PromptRenderError:
    return PromptRenderError(
        f"Section {node.key!r} cannot be rendered: {problem}.",
        section_path=node.path,
        dataclass_type=node.section.params_type,
    )


# The two tools with which a model looks into sections that are shown as summaries.


@dataclass(frozen=True, slots=True)
class OpenSections:
    """Which sections to open, and why."""

    section_keys: tuple[str, ...] = field(
        metadata={"description": "The keys of the sections, as their notes give them."}
    )
    reason: str = field(metadata={"description": "Why they are needed, in one sentence."})


@dataclass(frozen=True, slots=True)
class ReadSection:
    """Which section to read."""

    section_key: str = field(metadata={"description": "The key of the section, as its note gives it."})


def _open_sections(params: OpenSections, *, context: ToolContext) -> ToolResult[None]:
    keys = tuple(dict.fromkeys(params.section_keys))
    openable = _openable(context)
    unknown = [key for key in keys if key not in openable]
    if unknown or not keys:
        return ToolResult.error(_not_there("open_sections", unknown, openable))
    raise VisibilityExpansionRequired(
        f"The model opens {', '.join(keys)}: {params.reason}", section_keys=keys, reason=params.reason
    )


def _read_section(params: ReadSection, *, context: ToolContext) -> ToolResult[str]:
    key, openable = params.section_key, _openable(context)
    if key not in openable:
        return ToolResult.error(_not_there("read_section", [key], openable))
    text = cast(RenderedPrompt[Any], context.rendered_prompt).read_section(key)
    return ToolResult.ok(text, message=f"Section {key}; its tools are offered only once it is opened.")


def _openable(context: ToolContext) -> tuple[str, ...]:
    rendered = context.rendered_prompt
    return rendered.summarised if isinstance(rendered, RenderedPrompt) else ()


def _not_there(tool_name: str, unknown: list[str], openable: tuple[str, ...]) -> str:
    problem = f"Not a summarised section: {', '.join(unknown)}" if unknown else "No sections were named"
    if not openable:
        return f"{problem}\nEvery section is open already; read the prompt"
    return f"{problem}\nSummarised sections: {', '.join(openable)}\nCall {tool_name} with one of these keys"


@cache
def disclosure_tools() -> tuple[BoundTool, ...]:
    """What a prompt offers while any of its sections is a summary. Made when first needed: schemas take a moment."""
    opening = Tool[OpenSections, None](
        name="open_sections",
        description="Open sections that are shown as summaries, so that their full text and their tools are available.",
        handler=_open_sections,
        blocking=False,
        annotations=ToolAnnotations(destructive=False, idempotent=True, open_world=False, starts_programs=False),
        accepts_overrides=False,
    )
    reading = Tool[ReadSection, str](
        name="read_section",
        description="Read the full text of one summarised section without opening it.",
        handler=_read_section,
        blocking=False,
        annotations=ToolAnnotations(read_only=True, open_world=False),
        accepts_overrides=False,
    )
    return BoundTool(opening), BoundTool(reading)


def _disclosure_note(section_key: str, *, has_tools: bool) -> str:
    """The line below a summary that tells the model how to see more."""
    more = "its text and its tools" if has_tools else "its text"
    return (
        f'_This is a summary. For {more} call `open_sections` with section_keys ["{section_key}"]; '
        f'to only read it, call `read_section` with section_key "{section_key}"._'
    )
