"""The section: instructions, tools and policies that belong together, as one node of a prompt."""

from __future__ import annotations

import inspect
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NoReturn, TypedDict, TypeVar, Unpack, cast, final

from ..errors import PromptValidationError
from ..session import SessionProtocol
from ..signatures import signature_of
from .placeholders import TemplateText
from .policy import ToolPolicy
from .tool import Tool
from .type_forms import ParamsT, bind_type_arguments, short_name
from .visibility import SectionVisibility

# Functions that a section asks when it is rendered: whether it is there, and how much of it shows.


T = TypeVar("T")

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@final
class Condition(Generic[T]):
    """A function of the section's params, of the session, of both or of nothing, called in one way.

    The session is what a parameter named `session` gets; it is None where a prompt is rendered without one, unless
    that parameter has a default. TypeError for a function that cannot be called like that.
    """

    __slots__ = ("_function", "_session_first", "_session_kind", "_session_optional", "needs_session", "wants_params")

    def __init__(self, function: Callable[..., T]) -> None:
        if inspect.iscoroutinefunction(function):
            raise TypeError("it is async, but sections are rendered without waiting. Use a plain function")
        self._function = function
        parameters = _parameters(function)
        session = _session_parameter(parameters)
        others = [parameter for parameter in parameters if parameter is not session]
        self.wants_params: bool = _takes_argument(others)
        self._session_kind = None if session is None else session.kind
        self._session_optional = session is not None and session.default is not session.empty
        self._session_first = session is not None and session is parameters[0]
        self.needs_session: bool = session is not None and not self._session_optional

    def __call__(self, params: object, session: SessionProtocol | None = None) -> T:
        """What the function returns; an exception passes through."""
        given = [params] if self.wants_params else []
        if self._session_kind is None or (session is None and self._session_optional):
            return self._function(*given)
        if self._session_kind is inspect.Parameter.KEYWORD_ONLY:
            return self._function(*given, session=session)
        return self._function(*((session, *given) if self._session_first else (*given, session)))


def _parameters(function: Callable[..., Any]) -> Sequence[inspect.Parameter]:
    try:
        return list(signature_of(function).parameters.values())
    except (TypeError, ValueError):  # a built-in without a signature
        return [inspect.Parameter("params", inspect.Parameter.POSITIONAL_ONLY)]


def _session_parameter(parameters: Sequence[inspect.Parameter]) -> inspect.Parameter | None:
    """The parameter that the session is passed to, by its name."""
    return next((p for p in parameters if p.name == "session" and p.kind not in _VARIADIC), None)


@lru_cache(maxsize=512)
def takes_session(method: Callable[..., Any]) -> bool:
    """Whether a method of a subclass knows of the session; those written without it are called without."""
    return _session_parameter(_parameters(method)) is not None


def _takes_argument(parameters: Sequence[inspect.Parameter]) -> bool:
    required = [p for p in parameters if p.default is p.empty and p.kind in _POSITIONAL]
    if len(required) > 1 or any(p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in parameters):
        raise TypeError("it must take the section's params, or nothing, and may take session beside them")
    return bool(required) or any(p.kind in (*_POSITIONAL, p.VAR_POSITIONAL) for p in parameters)


Enabled = bool | Callable[[], object] | Callable[[Any], object] | Callable[[Any, Any], object]
"""Whether a section is in the prompt: a constant, or a function of its params, of `session`, of both or of nothing."""
Visibility = (
    SectionVisibility
    | Callable[[], SectionVisibility]
    | Callable[[Any], SectionVisibility]
    | Callable[[Any, Any], SectionVisibility]
)
"""How a section shows itself: a constant, or a function of its params, of `session`, of both or of nothing."""


class SectionOptions(TypedDict, Generic[ParamsT], total=False):
    """What every section can be given beside its title; see `Section`."""

    key: str | None
    params: type[ParamsT] | None
    policies: Iterable[ToolPolicy]
    children: Iterable[Section[Any]]
    enabled: Enabled | None
    default_params: ParamsT | None
    summary: str | None
    visibility: Visibility
    accepts_overrides: bool


_KEY = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


class Section(Generic[ParamsT]):
    """A node of a prompt. It never changes once it is built, and may be used in any number of prompts.

    Subclasses say more through five methods, none of which has to be overridden: `render_body` (the text below the
    heading), `render_state` (what the session holds now), `is_enabled`, `resources` (what its tools need) and
    `install` (reducers for the session that evaluates the prompt).

    Attributes:
        key: its name among its siblings; made from the title unless given.
        params_type: the dataclass whose values its placeholders show, or None.
        default_params: used where the prompt was given no params of that type.
        policies: they govern the tools of this section and of all sections below it.
        body: the template of its text, which is what overrides replace; None when there is none.
        summary: what the model reads of it while it is shown as a summary.

    `PromptValidationError` names the section, what is wrong and the fix.
    """

    params_type: type[ParamsT] | None = None
    body: TemplateText | None = None

    if not TYPE_CHECKING:

        def __class_getitem__(cls, argument: Any) -> Any:
            if isinstance(argument, TypeVar):
                return super().__class_getitem__(argument)
            return cls if argument in (None, Any) else bind_type_arguments(cls, "params_type", argument)

    def __init__(
        self,
        *,
        title: str,
        key: str | None = None,
        params: type[ParamsT] | None = None,
        tools: Iterable[Tool[Any, Any]] = (),
        policies: Iterable[ToolPolicy] = (),
        children: Iterable[Section[Any]] = (),
        enabled: Enabled | None = None,
        default_params: ParamsT | None = None,
        summary: str | None = None,
        visibility: Visibility = SectionVisibility.FULL,
        accepts_overrides: bool = True,
    ) -> None:
        key = _checked_key(title, key)
        self.key: str = key
        self.title: str = title.strip()
        self.params_type = self._resolve_params_type(params)
        self.default_params: ParamsT | None = self._checked_default(default_params)
        self.tools: tuple[Tool[Any, Any], ...] = self._all("tools", tools, lambda item: isinstance(item, Tool), "Tool")
        self.policies: tuple[ToolPolicy, ...] = self._all("policies", policies, _has_check, "policy with check()")
        self.children: tuple[Section[Any], ...] = self._all(
            "children", children, lambda item: isinstance(item, Section), "Section"
        )
        self.accepts_overrides = accepts_overrides
        self.summary_body: TemplateText | None = (
            None if summary is None else TemplateText(summary, self.params_type, path=(key,), what="summary")
        )
        self.enabled: bool | Condition[bool] = self._condition("enabled", True if enabled is None else enabled, bool)
        self.visibility: SectionVisibility | Condition[SectionVisibility] = self._condition(
            "visibility", visibility, SectionVisibility
        )
        if self.visibility is SectionVisibility.SUMMARY and self.summary_body is None:
            self._refuse("visibility=SectionVisibility.SUMMARY needs summary=, the text to show instead")

    @property
    def summary(self) -> str | None:
        """The summary as it was declared, dedented and stripped."""
        return None if self.summary_body is None else self.summary_body.source

    def is_enabled(self, params: ParamsT | None = None) -> bool:
        """Whether the section, with everything below it, is in the prompt. Raises what its `enabled=` raises.

        Asked without a session; a rendering asks an `enabled=` that takes one with its own. A subclass may take it,
        too: `is_enabled(self, params=None, *, session=None)`.
        """
        enabled = self.enabled
        return enabled if isinstance(enabled, bool) else bool(enabled(params))

    def render_body(self, params: ParamsT | None, *, session: SessionProtocol | None = None) -> str:
        """The text below the heading: the template with its placeholders filled, unless a subclass says otherwise.

        Called at every rendering in which the section shows in full; must not change anything. `session` is the one
        that evaluates the prompt, or None. An override of the section's body is shown instead of calling this.
        """
        del session
        return "" if self.body is None else self.body.fill(params)

    def render_summary(self, params: ParamsT | None, *, session: SessionProtocol | None = None) -> str:
        """What stands for the section while it is shown as a summary: the declared one, unless a subclass says more.

        Called at every rendering in which the section shows as a summary; must not change anything.
        """
        del session
        return "" if self.summary_body is None else self.summary_body.fill(params)

    def render_state(self, session: SessionProtocol) -> str:
        """What the session holds now, shown below the body; nothing unless a subclass says otherwise.

        Called only where there is a session, also when the body is overridden; must not change anything.
        """
        del session
        return ""

    def resources(self) -> Mapping[type[Any], object]:
        """What the section's tools need: instances or `Binding`s by type; nothing unless a subclass says otherwise.

        Asked once for each prompt template, so a `Binding` is what makes something new for each evaluation. Two
        sections of one prompt that bind the same type are refused.
        """
        return {}

    examples_continue: ClassVar[bool] = False
    """Whether the examples of its tools are one story: each goes on from what those before it left."""

    def example_resources(self) -> Mapping[type[Any], object]:
        """What the examples of its tools need to hold, in place of what the prompt binds; nothing unless overridden.

        For `wink check`, which asks anew for each example (or once for examples that continue): a filesystem with the
        files they name, a fake of a service. Nothing of it reaches an evaluation.
        """
        return {}

    def install(self, session: SessionProtocol) -> None:
        """Prepare the session that evaluates the prompt, mostly by installing reducers. It may be called again."""
        del session

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.key!r}: {len(self.tools)} tools, {len(self.children)} children>"

    def _refuse(self, problem: str) -> NoReturn:
        raise PromptValidationError(
            f"Section {self.key!r}: {problem}.",
            section_path=(self.key,),
            dataclass_type=self.params_type,
        )

    def _resolve_params_type(self, params: type[ParamsT] | None) -> type[ParamsT] | None:
        declared = type(self).params_type
        if params is not None and declared is not None and params is not declared:
            self._refuse(f"params={short_name(params)} contradicts its type argument {short_name(declared)}")
        found = params if params is not None else declared
        if found is not None and not (isinstance(found, type) and is_dataclass(found)):
            self._refuse(f"its params type must be a dataclass, got {found!r}")
        return found

    def _checked_default(self, default: ParamsT | None) -> ParamsT | None:
        if default is None:
            return None
        if self.params_type is None:
            self._refuse("default_params= needs a params type: write MarkdownSection[Params] or params=Params")
        if type(default) is not self.params_type:
            self._refuse(f"default_params= must be a {short_name(self.params_type)}, got {_what(default)}")
        return default

    def _all(self, field: str, items: Iterable[Any], fits: Callable[[Any], bool], what: str) -> tuple[Any, ...]:
        if fits(items):
            self._refuse(f"{field}= takes a sequence; write {field}=[...] around it")
        try:
            kept = tuple(items)
        except TypeError:
            self._refuse(f"{field}= takes a sequence of {what}s, got {_what(items)}")
        for item in kept:
            if not fits(item):
                self._refuse(f"{field}= takes {what} instances, got {_what(item)}")
        return kept

    def _condition(self, field: str, value: Any, constant: type[T]) -> T | Condition[T]:
        if isinstance(value, constant):
            return value
        if not callable(value) or isinstance(value, type):
            self._refuse(f"{field}= must be a {constant.__name__} or a function, got {value!r}")
        try:
            return Condition(cast(Callable[..., T], value))
        except TypeError as error:
            self._refuse(f"{field}= cannot be called: {error}")


def has_own(section: Section[Any], method: str) -> bool:
    """Whether the section's class says something of its own through that method."""
    return getattr(type(section), method) is not getattr(Section, method)


def fallback_params(section: Section[ParamsT]) -> ParamsT | None:
    """What a section uses when its prompt has no params for it: its defaults, or a dataclass made of its own.

    None when fields without defaults are missing, or there is no params type.
    """
    if section.default_params is not None or section.params_type is None:
        return section.default_params
    own = fields(cast(Any, section.params_type))
    if any(item.init and item.default is MISSING and item.default_factory is MISSING for item in own):
        return None
    return section.params_type()


def suite_config(made: type[T], session: object, config: T | None) -> T:
    """The config of a suite, which takes `(session, config)`: the one that was given, or one with all defaults.

    `PromptValidationError` for anything else: a config passed as the session would silently set no limit.
    """
    if session is not None and not isinstance(session, SessionProtocol):
        hint = f" Write config={short_name(type(session))}(...)." if isinstance(session, made) else ""
        raise PromptValidationError(f"The first argument of a suite is a session, got {_what(session)}.{hint}")
    if config is not None and not isinstance(config, made):
        raise PromptValidationError(f"config= takes a {made.__name__}, got {_what(config)}.")
    return made() if config is None else config


def _checked_key(title: object, key: object) -> str:
    if not isinstance(title, str) or not title.strip() or len(title.strip().splitlines()) > 1:
        raise PromptValidationError(f"A section's title must be one line of text, got {title!r}.")
    if key is None:
        folded = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
        key = re.sub(r"[^a-z0-9]+", "-", folded).strip("-")[:64].strip("-")
        if not key:
            raise PromptValidationError(f"No key can be made of the title {title!r}; give the section key='...'.")
    if not isinstance(key, str) or _KEY.fullmatch(key) is None:
        raise PromptValidationError(
            f"The section key {key!r} is not usable: lower-case letters, digits, '_' and '-', at most 64, such as "
            "'file-operations'."
        )
    return key


def _has_check(item: object) -> bool:
    return not isinstance(item, type) and callable(getattr(item, "check", None))


def _what(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"


# Sections written as markdown templates.


class MarkdownSection(Section[ParamsT]):
    r"""A section whose text is a template: dedented, stripped, `${name}` placeholders filled from its params.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Guidance:
    ...     audience: str
    >>> section = MarkdownSection[Guidance](title="Tone", template="Write for ${audience}; it costs $5.")
    >>> section.key, section.render_body(Guidance("children"))
    ('tone', 'Write for children; it costs $5.')
    """

    _text_name: ClassVar[str] = "template"

    def __init__(
        self,
        *,
        title: str,
        template: str = "",
        tools: Iterable[Tool[Any, Any]] = (),
        **options: Unpack[SectionOptions[ParamsT]],
    ) -> None:
        super().__init__(title=title, tools=tools, **options)
        self.body: TemplateText | None = TemplateText(
            template, self.params_type, path=(self.key,), what=self._text_name
        )

    @property
    def template(self) -> str:
        """The text as it was declared, dedented and stripped."""
        assert self.body is not None
        return self.body.source


class TextSection(MarkdownSection[ParamsT]):
    """`MarkdownSection` by its older name: the template is called `body`."""

    _text_name = "body"

    def __init__(
        self,
        title: str,
        body: str = "",
        *,
        tools: Iterable[Tool[Any, Any]] = (),
        **options: Unpack[SectionOptions[ParamsT]],
    ) -> None:
        super().__init__(title=title, template=body, tools=tools, **options)


class ToolsSection(MarkdownSection[ParamsT]):
    """Tools with a heading and an optional description. It never lists its tools: adapters tell the model of them."""

    _text_name = "description"

    def __init__(
        self,
        *,
        title: str,
        tools: Iterable[Tool[Any, Any]],
        description: str = "",
        **options: Unpack[SectionOptions[ParamsT]],
    ) -> None:
        super().__init__(title=title, template=description, tools=tools, **options)
