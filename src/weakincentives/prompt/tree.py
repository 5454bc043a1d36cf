"""The sections of a prompt, laid out once: paths, tools with their policies, resources. Ambiguous names are refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, cast, final

from ..errors import PromptValidationError
from .placeholders import TemplateText, dotted
from .policy import ToolPolicy, as_policy, may_overlap
from .prompt_resources import as_bindings
from .section import Section, has_own
from .tool import Tool
from .type_forms import short_name
from .visibility import SectionVisibility

RESERVED_TOOL_NAMES: Final = frozenset({"open_sections", "read_section", "read_tool_result"})
"""Names of tools that WINK itself offers."""


@final
@dataclass(frozen=True, slots=True)
class BoundTool:
    """A tool as one prompt offers it.

    Attributes:
        policies: all that govern it, in the order in which they are asked: those of its section, of the sections
            around it from the inside out, of the template.
        section_path: where it was declared.
        listeners: those of the policies that are told of calls that succeeded.
        overlaps: whether its calls may run beside one another: it only reads, and its policies allow it.
    """

    tool: Tool[Any, Any]
    policies: tuple[ToolPolicy, ...] = ()
    section_path: tuple[str, ...] = ()
    listeners: tuple[ToolPolicy, ...] = field(init=False)
    overlaps: bool = field(init=False)

    def __post_init__(self) -> None:
        listeners = tuple(policy for policy in self.policies if as_policy(policy).listener() is not None)
        object.__setattr__(self, "listeners", listeners)
        object.__setattr__(self, "overlaps", self.tool.annotations.read_only and may_overlap(self.policies))


@final
@dataclass(frozen=True, slots=True)
class SectionNode:
    """One section in its place.

    Attributes:
        index, end: its place in the tree, and that after the last node of its subtree.
        tools_inside: whether it or anything below it has tools.
        marks: the heading's number signs.
        enabled, visibility: what can be said without params; None when they must be asked for.
        override: the body that replaces the section's own, or None.
    """

    section: Section[Any]
    path: tuple[str, ...]
    key: str
    index: int
    end: int
    marks: str
    tools_inside: bool
    tools: tuple[BoundTool, ...]
    enabled: bool | None
    visibility: SectionVisibility | None
    needs_params: bool
    has_state: bool
    override: TemplateText | None = None


class SectionTree(NamedTuple):
    """All nodes, depth first in the order of declaration, and what is known of them together.

    Attributes:
        system_end: how many nodes, from the first, are what the system says; the others are the user's message.
    """

    nodes: tuple[SectionNode, ...]
    tools: Mapping[str, BoundTool]
    params_types: Mapping[type[Any], str]
    resources: Mapping[type[Any], tuple[object, str]]
    system_end: int = 0

    def overridden(self, bodies: Mapping[str, TemplateText], tools: Mapping[str, Tool[Any, Any]]) -> SectionTree:
        """The same tree with other section bodies, by dotted path, and other tools, by name."""
        nodes: list[SectionNode] = []
        for node in self.nodes:
            if node.key in bodies or any(bound.tool.name in tools for bound in node.tools):
                bound = tuple(replace(bound, tool=tools.get(bound.tool.name, bound.tool)) for bound in node.tools)
                node = replace(node, override=bodies.get(node.key, node.override), tools=bound)
            nodes.append(node)
        by_name = {bound.tool.name: bound for node in nodes for bound in node.tools}
        return self._replace(nodes=tuple(nodes), tools=by_name)


def build_section_tree(
    sections: Iterable[Section[Any]], policies: Sequence[ToolPolicy], *, system: Sequence[Section[Any]] = ()
) -> SectionTree:
    """Lay the sections out, those of the `system` first.

    `PromptValidationError` for equal keys beside one another, equal or reserved tool names, and two sections that bind
    the same resource type (the message has both paths), and what a policy's `check_tool` raises.
    """
    nodes: list[SectionNode | None] = []
    _place((*system, *sections), (), tuple(policies), nodes)
    placed = cast(list[SectionNode], nodes)
    system_end = sum(1 for node in placed if node.path[0] in {section.key for section in system})
    return SectionTree(tuple(placed), _tools(placed), _params_types(placed), _resources(placed), system_end)


def _place(
    sections: Sequence[Section[Any]],
    above: tuple[str, ...],
    outer: tuple[ToolPolicy, ...],
    nodes: list[SectionNode | None],
) -> None:
    seen: set[str] = set()
    for section in sections:
        path = (*above, section.key)
        if section.key in seen:
            raise PromptValidationError(
                f"Two sections beside one another have the path {dotted(path)!r}. Give one of them another key=.",
                section_path=path,
            )
        seen.add(section.key)
        policies = (*section.policies, *outer)
        index = len(nodes)
        nodes.append(None)  # its place; it is made when the end of its subtree is known
        _place(section.children, path, policies, nodes)
        below = cast(list[SectionNode], nodes[index + 1 :])
        nodes[index] = _node(section, path, policies, index, below)


def _node(
    section: Section[Any],
    path: tuple[str, ...],
    policies: tuple[ToolPolicy, ...],
    index: int,
    below: Sequence[SectionNode],
) -> SectionNode:
    own_rule = has_own(section, "is_enabled")
    own_body = has_own(section, "render_body")
    return SectionNode(
        section=section,
        path=path,
        key=dotted(path),
        index=index,
        end=index + 1 + len(below),
        marks="#" * min(len(path) + 1, 6),
        tools_inside=bool(section.tools) or any(node.tools_inside for node in below),
        tools=tuple(BoundTool(tool, policies, path) for tool in section.tools),
        enabled=section.enabled if isinstance(section.enabled, bool) and not own_rule else None,
        visibility=section.visibility if isinstance(section.visibility, SectionVisibility) else None,
        needs_params=section.params_type is not None and (own_body or bool(section.body and section.body.names)),
        has_state=has_own(section, "render_state"),
    )


def _tools(nodes: Iterable[SectionNode]) -> dict[str, BoundTool]:
    found: dict[str, BoundTool] = {}
    for bound in (bound for node in nodes for bound in node.tools):
        name, path = bound.tool.name, bound.section_path
        if name in RESERVED_TOOL_NAMES:
            raise PromptValidationError(
                f"The tool {name!r} in section {dotted(path)!r} has a name that WINK uses itself. Choose another one.",
                section_path=path,
                tool_name=name,
            )
        if name in found:
            raise PromptValidationError(
                f"The tool {name!r} is declared twice: in section {dotted(found[name].section_path)!r} and in section "
                f"{dotted(path)!r}. Rename one, or give one of two tool suites a tool_prefix=.",
                section_path=path,
                tool_name=name,
                dataclass_type=bound.tool.params_type,
            )
        found[name] = bound
        for policy in bound.policies:
            as_policy(policy).check_tool(bound.tool)
    return found


def _params_types(nodes: Iterable[SectionNode]) -> dict[type[Any], str]:
    found: dict[type[Any], str] = {}
    for node in nodes:
        if node.section.params_type is not None:
            found.setdefault(node.section.params_type, node.key)
    return found


def _resources(nodes: Sequence[SectionNode]) -> dict[type[Any], tuple[object, str]]:
    found: dict[type[Any], tuple[object, str]] = {}
    for node in _not_switched_off(nodes):
        for resource_type, value in as_bindings(node.section.resources()).items():
            if resource_type in found:
                raise PromptValidationError(
                    f"{short_name(resource_type)} is bound twice: by section {found[resource_type][1]!r} and by "
                    f"section {node.key!r}. A prompt has one of each; leave one of the sections out, or let both "
                    "share it.",
                    section_path=node.path,
                )
            found[resource_type] = (value, node.key)
    return found


def _not_switched_off(nodes: Sequence[SectionNode]) -> Iterator[SectionNode]:
    index = 0
    while index < len(nodes):
        node = nodes[index]
        if node.enabled is False:
            index = node.end
        else:
            yield node
            index += 1
