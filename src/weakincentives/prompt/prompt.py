"""The prompt: a template with params, resources and overrides, ready to be rendered."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, final, overload

from ..errors import PromptError, PromptRenderError, PromptValidationError
from ..resources import ResourceRegistry
from ..session import SessionProtocol
from .placeholders import dotted
from .policy import ToolPolicy
from .prompt_resources import Bindings, PromptResources, as_bindings, merged
from .render import RenderedPrompt, offered_tools, render
from .section import Section
from .template import PromptTemplate, StructuredOutput, checked_sections
from .tool import Tool
from .tree import SectionTree, build_section_tree
from .type_forms import OutputT
from .visibility import VisibilityOverrides

if TYPE_CHECKING:
    from .overrides import PromptDescriptor, PromptOverridesStore

SectionT = TypeVar("SectionT", bound=Section[Any])


@final
class Prompt(Generic[OutputT]):
    r"""A template with what one evaluation needs. It never changes: `bind` makes another one.

    `Prompt(template)`, or `Prompt(name=, sections=)`, which makes the template itself. With an `overrides_store` the
    words of sections and tools are those stored under `overrides_tag`, looked up when the prompt is made.

    >>> from weakincentives.prompt import MarkdownSection
    >>> prompt = Prompt(name="greeter", sections=[MarkdownSection(title="Task", template="Say hello.")])
    >>> str(prompt.render())
    '## 1. Task\n\nSay hello.'
    """

    def __init__(
        self,
        template: PromptTemplate[OutputT] | None = None,
        *,
        name: str | None = None,
        sections: Iterable[Section[Any]] | None = None,
        overrides_store: PromptOverridesStore | None = None,
        overrides_tag: str = "latest",
    ) -> None:
        if template is None:
            template = _template_of(name, sections)
        elif name is not None or sections is not None:
            raise TypeError(
                "Prompt takes a template, or name= and sections= to make one. For more sections use "
                "Prompt(template).bind(sections=[...])."
            )
        if not isinstance(template, PromptTemplate):
            raise TypeError(f"Prompt takes a PromptTemplate, got {type(cast(object, template)).__name__}.")
        self._template = template
        self._overrides_store = overrides_store
        self._overrides_tag = overrides_tag
        self._extra: tuple[Section[Any], ...] = ()
        self._declared = template.tree
        self._descriptor: PromptDescriptor | None = None  # hashing takes a moment, and few ask
        self._params: dict[type[Any], object] = {}
        self._bound: dict[Any, object] = {}
        self._resources = PromptResources(template.registry)
        self._tree = self._with_overrides()

    # What it is.

    @property
    def template(self) -> PromptTemplate[OutputT]:
        """What it was made from."""
        return self._template

    @property
    def ns(self) -> str:
        """The template's namespace."""
        return self._template.ns

    @property
    def key(self) -> str:
        """The template's key."""
        return self._template.key

    @property
    def name(self) -> str:
        """The name used in events and error messages."""
        return self._template.name

    @property
    def sections(self) -> tuple[Section[Any], ...]:
        """The template's sections, then those that were bound."""
        return (*self._template.sections, *self._extra)

    @property
    def params(self) -> Mapping[type[Any], object]:
        """What is bound, by type."""
        return MappingProxyType(self._params)

    @property
    def resources(self) -> PromptResources:
        """What its tools need; `with prompt.resources:` around an evaluation."""
        return self._resources

    @property
    def structured_output(self) -> StructuredOutput[OutputT] | None:
        """The type of the answer, or None when it is plain text."""
        return self._template.structured_output

    @property
    def output_type(self) -> type[OutputT] | None:
        """What the answer is parsed into: as in `PromptTemplate[Output]`, or None."""
        return self._template.output_type

    @property
    def output_schema(self) -> dict[str, Any] | None:
        """The JSON schema of the answer, or None when it is plain text."""
        output = self.structured_output
        return None if output is None else output.schema

    @property
    def descriptor(self) -> PromptDescriptor:
        """What of it can be overridden, in the words of the code; empty when the template accepts no overrides."""
        if self._descriptor is None:
            from .overrides import describe  # noqa: PLC0415 - few programs override prompts

            open_to = self._declared if self._template.accepts_overrides else build_section_tree((), ())
            self._descriptor = describe(self.ns, self.key, open_to)
        return self._descriptor

    # Making another one.

    def bind(
        self,
        *params: object,
        resources: Bindings | None = None,
        sections: Iterable[Section[Any]] | None = None,
        **unknown: object,
    ) -> Prompt[OutputT]:
        """Another prompt with these params, resources and further sections; this one stays as it is.

        Params go to the sections of their type, resources to the tools. Where something of a type was bound before,
        the new one counts. Sections are added after those there are. `PromptValidationError` for params that no
        section takes, two of one type, and what a template would be refused for.
        """
        if unknown:
            raise TypeError(_unknown_argument(next(iter(unknown))))
        other = cast("Prompt[OutputT]", object.__new__(Prompt))
        other.__dict__.update(self.__dict__)
        if sections is not None:
            other._extra = (*self._extra, *checked_sections(sections, f"Prompt {self.name!r}"))
            other._declared = build_section_tree(other.sections, self._template.policies)
            other._descriptor = None
            other._tree = other._with_overrides()
        if params:
            other._params = {**self._params, **other._by_type(params, PromptValidationError)}
        registry = self._resources.registry
        if resources is not None or sections is not None:
            other._bound = {**self._bound, **as_bindings(resources)}
            registry = merged(self._template.resources, other._declared.resources, other._bound)
        # Its own context: what one prompt's evaluation built, another must not close.
        other._resources = PromptResources(registry)
        return other

    def substituting(
        self, tools: Mapping[str, Tool[Any, Any]], resources: Mapping[Any, object] = MappingProxyType({})
    ) -> Prompt[OutputT]:
        """The same prompt with other tools under the same names, and other resources, wherever they were bound.

        Sections, policies and words stay. This is for replays and the like; a program declares what it needs.
        """
        other = self.bind()
        registry = self._resources.registry
        other._tree = self._tree.overridden({}, tools)
        other._resources = PromptResources(ResourceRegistry.build({**as_bindings(registry), **resources}))
        return other

    # Using it.

    def render(
        self,
        *params: object,
        session: SessionProtocol | None = None,
        output_instructions: bool | None = None,
    ) -> RenderedPrompt[OutputT]:
        """The text and tools as they are now. Params given here count before those that were bound.

        With a `session`, sections show its state and what was opened in it. `output_instructions` overrules the
        template. `PromptRenderError` for params that are missing or that no section takes, and when a section's own
        code raises.
        """
        given = {**self._params, **self._by_type(params, PromptRenderError)} if params else self._params
        return render(
            self._tree,
            given,
            session,
            prompt_name=self.name,
            output=self._template.structured_output,
            output_instructions=(
                self._template.output_instructions if output_instructions is None else output_instructions
            ),
        )

    def tools(self, *params: object, session: SessionProtocol | None = None) -> tuple[Tool[Any, Any], ...]:
        """The tools of the enabled sections, in the order of declaration, depth first; as `render` would offer them.

        Params are needed only where a section needs them to know whether it is enabled or how it shows.
        """
        given = {**self._params, **self._by_type(params, PromptRenderError)} if params else self._params
        return offered_tools(self._tree, given, session)

    def policies_for(self, tool_name: str) -> tuple[ToolPolicy, ...]:
        """All policies of a tool, in the order in which they are asked.

        Its section's, those of the sections around it from the inside out, the template's. KeyError for a tool that no
        section declares.
        """
        try:
            return self._tree.tools[tool_name].policies
        except KeyError:
            known = ", ".join(self._tree.tools) or "none"
            raise KeyError(f"The prompt {self.name!r} declares no tool {tool_name!r}; it has: {known}") from None

    @overload
    def find_section(self, wanted: type[SectionT], /) -> SectionT: ...
    @overload
    def find_section(self, wanted: str | Sequence[str], /) -> Section[Any]: ...
    def find_section(self, wanted: Any, /) -> Any:
        """The section of this path ("parent.child", or its keys one by one), of this key, or of this class.

        KeyError when there is none, or when several have the key or are of the class; it names what there is.
        """
        nodes = self._tree.nodes
        if isinstance(wanted, type):
            found = [node for node in nodes if isinstance(node.section, cast("type[Any]", wanted))]
            what = f"of the class {wanted.__name__}"
        else:
            path = wanted if isinstance(wanted, str) else dotted(wanted)
            found = [node for node in nodes if node.key == path] or [node for node in nodes if node.path[-1] == path]
            what = repr(path)
        if len(found) == 1:
            return found[0].section
        paths = ", ".join(node.key for node in found or nodes) or "none"
        if found:
            raise KeyError(f"The prompt {self.name!r} has {len(found)} sections {what}; name one by its path: {paths}")
        raise KeyError(f"The prompt {self.name!r} has no section {what}; it has: {paths}")

    def install(self, session: SessionProtocol) -> None:
        """Prepare the session that evaluates this prompt: every section installs its reducers. May be repeated."""
        session.install(VisibilityOverrides)
        for node in self._tree.nodes:
            node.section.install(session)

    def parse_output(self, text: str) -> OutputT:
        """The model's final answer as the type of `PromptTemplate[Output]`; a `str` is the text itself.

        The text is JSON, or holds one fenced block of it. `ParseError` lists everything that is wrong; `PromptError`
        when the template names no type.
        """
        if self._template.structured_output is not None:
            return self._template.structured_output.parse(text)
        if self.output_type is str:
            return cast(OutputT, text)
        raise PromptError(
            f"The prompt {self.name!r} has no output type, so its answer is text. Declare PromptTemplate[Output](...)."
        )

    def __repr__(self) -> str:
        return f"<Prompt {self.ns}/{self.key}: {len(self._tree.nodes)} sections, {len(self._tree.tools)} tools>"

    # Inside.

    def _with_overrides(self) -> SectionTree:
        if self._overrides_store is None or not self._template.accepts_overrides:
            return self._declared
        from .overrides import apply  # noqa: PLC0415 - as above

        override = self._overrides_store.resolve(self.descriptor, self._overrides_tag)
        return self._declared if override is None else apply(self._declared, self.descriptor, override)

    def _by_type(
        self, params: tuple[object, ...], error: type[PromptValidationError | PromptRenderError]
    ) -> dict[type[Any], object]:
        found: dict[type[Any], object] = {}
        known = self._declared.params_types
        for item in params:
            cls = type(item)
            if cls not in known:
                raise error(f"Prompt {self.name!r}: {_unknown_params(item, known)}", dataclass_type=cls)
            if cls in found:
                raise error(
                    f"Prompt {self.name!r}: two params of the type {cls.__name__}; pass one.", dataclass_type=cls
                )
            found[cls] = item
        return found


def _template_of(name: str | None, sections: Iterable[Section[Any]] | None) -> PromptTemplate[Any]:
    if name is None or sections is None:
        raise TypeError(
            "Prompt takes a template: Prompt(PromptTemplate(ns=, key=, sections=)), or name= and sections=."
        )
    key = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:100]
    return PromptTemplate[Any](ns="prompts", key=key, name=name, sections=sections)


def _unknown_argument(name: str) -> str:
    if name in {"tools", "extra_tools"}:
        return (
            f"bind() takes no {name}=: tools live on sections, with the words that explain them. "
            "Use bind(sections=[ToolsSection(title=..., tools=[...])])."
        )
    return f"bind() has no argument {name!r}; it takes params, resources= and sections=."


def _unknown_params(item: object, known: Mapping[type[Any], str]) -> str:
    names = ", ".join(f"{cls.__name__} (section {path!r})" for cls, path in known.items()) or "none"
    if isinstance(item, type):
        return f"params are instances, but got the class {item.__name__}; write {item.__name__}(...)."
    return f"no section takes params of the type {type(item).__name__}. Known: {names}."
