"""Sections: what they are made of, and what is refused when they are built."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weakincentives.errors import PromptError, PromptRenderError, PromptValidationError
from weakincentives.prompt import MarkdownSection, Prompt, Section, SectionVisibility, TextSection, Tool, ToolsSection
from weakincentives.prompt.type_forms import bind_type_arguments
from weakincentives.session import Session, SessionProtocol

T = TypeVar("T")


@dataclass
class Guidance:
    audience: str = "adults"
    note: str | None = None
    words: int = field(default=100)

    @property
    def loud(self) -> str:
        return self.audience.upper()


@dataclass
class Other:
    x: int = 0


class Broken:
    def __str__(self) -> str:
        raise RuntimeError("no text")


@dataclass
class Holder:
    value: object


def takes_two(first: object, second: object) -> bool:
    return first is second


def takes_a_keyword(*, flag: bool) -> bool:
    return flag


NOW = Tool[None, str](name="now", description="The time.")


def body(template: str, params: object = None) -> str:
    cls: Any = MarkdownSection if params is None else MarkdownSection[type(params)]
    return cls(title="T", template=template).render_body(params)


def test_the_key_is_a_slug_of_the_title() -> None:
    """Without a key a section is named after its title; with one, after that."""
    assert MarkdownSection(title="File Operations (beta)").key == "file-operations-beta"
    assert MarkdownSection(title="Résumé à la carte").key == "resume-a-la-carte"
    assert MarkdownSection(title="File Operations", key="files").key == "files"
    assert MarkdownSection(title=" padded ").title == "padded"
    assert len(MarkdownSection(title="very long title " * 20).key) <= 64


@pytest.mark.parametrize("title", ["", "  ", "two\nlines", None, 3])
def test_a_title_is_one_line_of_text(title: Any) -> None:
    """Anything else would break the heading, so it is refused."""
    with pytest.raises(PromptValidationError, match="title must be one line"):
        MarkdownSection(title=title)


@pytest.mark.parametrize("key", ["", "Upper", "a.b", "a/b", "-a", "a b", "x" * 65, 7, "a\n"])
def test_a_key_must_be_usable_in_a_path(key: Any) -> None:
    """Keys make dotted paths and file contents, so only a small alphabet is allowed."""
    with pytest.raises(PromptValidationError, match=r"key .* is not usable"):
        MarkdownSection(title="T", key=key)


def test_a_title_without_letters_needs_a_key() -> None:
    """The message says what to give."""
    with pytest.raises(PromptValidationError, match="give the section key="):
        MarkdownSection(title="???")


def test_templates_are_dedented_and_stripped() -> None:
    """What is written indented in code reads flush left, with inner indentation kept."""
    assert body("\n    Steps:\n      1. one\n\n    end\n    ") == "Steps:\n  1. one\n\nend"


def test_placeholders_show_fields_and_properties() -> None:
    """`${name}` is filled with `str()` of the value; None shows as nothing."""
    filled = body("For ${audience}/${loud}, ${words} words${note}.", Guidance("children"))
    assert filled == "For children/CHILDREN, 100 words."


def test_other_dollar_signs_are_text() -> None:
    """A lone dollar sign and a bare name stay; two make one."""
    assert body("It costs $5, see $HOME, $$5, $ and $${audience} at the end $") == (
        "It costs $5, see $HOME, $5, $ and ${audience} at the end $"
    )
    assert body("$$${audience}$$", Guidance("x")) == "$x$"


@dataclass(frozen=True)
class Shouting:
    NAME: str


class Own(MarkdownSection[Any]):
    def __init__(self) -> None:
        super().__init__(title="T", key="t", template="For $audience, please.")


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ('MarkdownSection(title="T", key="t", template="For $audience, please.")', "audience"),
        ('MarkdownSection[Shouting](title="T", key="t", template="Hello $NAME.")', "NAME"),
        ('TextSection("T", "For $audience, please.", key="t")', "audience"),
    ],
)
def test_a_bare_name_is_a_warning(source: str, name: str) -> None:
    """`$name` is text, but was hardly meant as such: the warning says so, at the line that made the section."""
    program = compile(f"\n\nmade = {source}\n", "agent.py", "exec")
    names = {"MarkdownSection": MarkdownSection, "TextSection": TextSection, "Shouting": Shouting}
    with pytest.warns(UserWarning, match=rf"section 't', \${name} is text .* Write \$\{{{name}\}}") as caught:
        exec(program, names)
    assert [(warning.filename, warning.lineno) for warning in caught] == [("agent.py", 3)]
    made = cast("Section[Any]", names["made"])
    assert made.body is not None
    assert f"${name}" in made.body.source


def test_a_bare_name_in_a_class_of_ones_own_is_a_warning_there() -> None:
    """Where the template is written, which is the class."""
    with pytest.warns(UserWarning, match="is text") as caught:
        Own()
    assert (caught[0].filename, caught[0].lineno) == (__file__, Own.__init__.__code__.co_firstlineno + 1)


def test_what_cannot_be_a_placeholder_is_no_warning() -> None:
    """Prices, shell variables in capitals, escaped dollars and real placeholders."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert body("$5 $HOME $_ $$name $${name} ${audience}", Guidance("x")) == "$5 $HOME $_ $name ${name} x"


def test_values_are_never_expanded_again() -> None:
    """A value that looks like a placeholder or an escape stays as it is."""
    assert body("${audience} ${words}", Guidance("${words} $$ ${audience}", words=5)) == "${words} $$ ${audience} 5"


@given(st.text(), st.text(alphabet=st.sampled_from("${}abc words")))
def test_any_value_comes_out_as_it_went_in(value: str, tail: str) -> None:
    """Filling is one pass, whatever the value holds."""
    assert body("a ${value} b", Holder(value + tail)) == f"a {value}{tail} b"


@given(st.text(alphabet=st.sampled_from("${}a_ \n1x")))
@pytest.mark.filterwarnings("ignore:In the template:UserWarning")
def test_any_template_is_filled_or_refused(template: str) -> None:
    """No template crashes: it renders, or is refused with the section's path."""
    refusal: PromptValidationError | None = None
    try:
        assert isinstance(body(template, Holder("v")), str)
    except PromptValidationError as error:
        refusal = error
    assert refusal is None or refusal.section_path == ("t",)


def test_an_unknown_placeholder_names_the_nearest_field() -> None:
    """The error has the section, the placeholder and the type."""
    with pytest.raises(PromptValidationError, match=r"\$\{audience\}\?") as caught:
        MarkdownSection[Guidance](title="Tone", template="${audiense}")
    error = caught.value
    assert (error.section_path, error.placeholder, error.dataclass_type) == (("tone",), "audiense", Guidance)


def test_an_unknown_placeholder_lists_the_fields_when_none_is_near() -> None:
    """There is always something to go by."""
    with pytest.raises(PromptValidationError, match="it has: audience, note, words, loud"):
        MarkdownSection[Guidance](title="Tone", template="${zzz}")


def test_a_placeholder_needs_a_params_type() -> None:
    """Without one it could never be filled."""
    with pytest.raises(PromptValidationError, match=r"give the section a params type") as caught:
        MarkdownSection(title="Tone", template="${audience}")
    assert caught.value.placeholder == "audience"


@pytest.mark.parametrize("template", ["${}", "${a b}", "${a.b}", "${1}", "${unclosed", "${a{b}}", "${\n}"])
def test_malformed_placeholders_are_refused(template: str) -> None:
    """They are neither text nor placeholders; the message says how to write either."""
    with pytest.raises(PromptValidationError, match=r"is not a placeholder; write \$\{name\}"):
        MarkdownSection[Guidance](title="Tone", template=template)


def test_the_summary_is_checked_like_the_template() -> None:
    """Its placeholders must exist too."""
    with pytest.raises(PromptValidationError, match="In the summary of section 'tone'"):
        MarkdownSection[Guidance](title="Tone", summary="${nope}")
    assert MarkdownSection(title="T", summary="  short ").summary == "short"


def test_a_value_without_text_is_a_render_error() -> None:
    """What `__str__` raises is the cause of an error that names section and placeholder."""
    with pytest.raises(PromptRenderError, match="could not be filled: RuntimeError: no text") as caught:
        body("${value}", Holder(Broken()))
    assert caught.value.placeholder == "value"
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_the_params_type_may_be_given_in_three_ways() -> None:
    """As a type argument, as `params=`, or by a subclass."""

    class Mine(MarkdownSection[Guidance]):
        pass

    assert MarkdownSection[Guidance](title="T").params_type is Guidance
    assert TextSection("T", "${audience}", params=Guidance).params_type is Guidance
    assert Mine(title="T", template="${audience}").params_type is Guidance
    assert MarkdownSection(title="T").params_type is None
    assert MarkdownSection[None](title="T").params_type is None
    assert isinstance(MarkdownSection[Guidance](title="T"), MarkdownSection)


def test_generic_subclasses_pass_their_type_on() -> None:
    """A user's generic section takes its type argument the same way."""

    class Mine(MarkdownSection[T], Generic[T]):
        pass

    assert Mine[Guidance](title="T", template="${words}").params_type is Guidance
    with pytest.raises(TypeError, match="is for Guidance already"):
        bind_type_arguments(Mine[Guidance], "params_type", Other)


def test_contradicting_params_types_are_refused() -> None:
    """`params=` may repeat the type argument but not contradict it."""
    assert MarkdownSection[Guidance](title="T", params=Guidance).params_type is Guidance
    with pytest.raises(PromptValidationError, match="params=Other contradicts"):
        MarkdownSection[Guidance](title="T", params=cast(Any, Other))


@pytest.mark.parametrize("params", [int, dict, Guidance("x"), "Guidance"])
def test_params_types_are_dataclasses(params: Any) -> None:
    """Placeholders come from fields, so only a dataclass will do."""
    with pytest.raises(PromptValidationError, match="must be a dataclass"):
        MarkdownSection(title="T", params=params)


def test_default_params_must_be_of_the_type() -> None:
    """They stand in for what was not bound, so they must fit."""
    assert MarkdownSection[Guidance](title="T", default_params=Guidance("x")).default_params == Guidance("x")
    with pytest.raises(PromptValidationError, match="must be a Guidance, got a Other"):
        MarkdownSection[Guidance](title="T", default_params=cast(Any, Other()))
    with pytest.raises(PromptValidationError, match="needs a params type"):
        MarkdownSection(title="T", default_params=Other())


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"tools": NOW}, r"write tools=\[...\] around it"),
    ({"tools": ["now"]}, "takes Tool instances, got a str"),
    ({"tools": 3}, "takes a sequence of Tools"),
    ({"policies": [object()]}, r"policy with check\(\) instances"),
    ({"children": ["text"]}, "takes Section instances"),
    ({"children": MarkdownSection(title="C")}, "takes a sequence"),
    ({"children": [MarkdownSection]}, "got the class MarkdownSection"),
    ({"enabled": "yes"}, "enabled= must be a bool or a function"),
    ({"enabled": takes_two}, "must take the section's params, or nothing"),
    ({"enabled": takes_a_keyword}, "must take the section's params, or nothing"),
    ({"visibility": "summary"}, "visibility= must be a SectionVisibility or a function"),
    ({"visibility": SectionVisibility.SUMMARY}, "needs summary="),
    ({"template": 3}, "must be text, got int"),
]


@pytest.mark.parametrize(("options", "text"), WRONG)
def test_wrong_arguments_are_refused(options: dict[str, Any], text: str) -> None:
    """Each message names the section and the fix."""
    with pytest.raises(PromptValidationError, match=text) as caught:
        MarkdownSection(title="Mine", **options)
    assert caught.value.section_path == ("mine",)


def test_async_conditions_are_refused() -> None:
    """They would never be awaited."""

    async def later() -> bool:
        return True

    with pytest.raises(PromptValidationError, match="it is async"):
        MarkdownSection(title="T", enabled=later)


def long_enough(limit: int, params: Guidance) -> bool:
    return params.words > limit


def one_argument(*args: object) -> bool:
    return len(args) == 1


ENABLED: list[tuple[Any, bool | None]] = [
    (None, True),
    (True, True),
    (False, False),
    (lambda: False, False),
    (partial(long_enough, 50), True),
    (partial(long_enough, 500), False),
    (one_argument, True),
    (bool, None),
]


@pytest.mark.parametrize(("enabled", "expected"), ENABLED)
def test_enabled_is_a_constant_or_a_function(enabled: Any, expected: bool | None) -> None:
    """A function may take the params or nothing; a class is no function."""
    if expected is None:
        with pytest.raises(PromptValidationError, match="enabled="):
            MarkdownSection[Guidance](title="T", enabled=enabled)
        return
    assert MarkdownSection[Guidance](title="T", enabled=enabled).is_enabled(Guidance()) is expected


@dataclass(frozen=True)
class Mode:
    strict: bool


def is_strict(session: Any) -> bool:
    return session is not None and session[Mode].latest() == Mode(True)


def by_keyword(guidance: Guidance, *, session: Any) -> bool:
    return isinstance(guidance, Guidance) and is_strict(session)


def both(guidance: Guidance, session: Any) -> bool:
    return isinstance(guidance, Guidance) and is_strict(session)


def by_keyword_alone(*, session: Any) -> bool:
    return is_strict(session)


def only_by_position(session: Any, guidance: Guidance, /) -> bool:
    return isinstance(guidance, Guidance) and is_strict(session)


def with_a_default(session: Any = Session()) -> bool:  # noqa: B008 - what is captured is not overwritten by None
    return session is not None and is_strict(session)


OF_SESSION: list[Any] = [
    is_strict,
    both,
    by_keyword,
    by_keyword_alone,
    only_by_position,
    with_a_default,
]


@pytest.mark.parametrize("function", OF_SESSION)
def test_enabled_and_visibility_may_take_the_session(function: Any) -> None:
    """A parameter named `session` gets the session that evaluates the prompt, beside the params or alone."""

    def shown(*args: Any, **options: Any) -> SectionVisibility:
        return SectionVisibility.FULL if function(*args, **options) else SectionVisibility.SUMMARY

    cast(Any, shown).__signature__ = inspect.signature(function)
    prompt = Prompt(
        name="strict",
        sections=[
            MarkdownSection[Guidance](title="Rules", template="All of them.", enabled=function, tools=[NOW]),
            MarkdownSection[Guidance](title="More", template="In full.", summary="In short.", visibility=shown),
        ],
    ).bind(Guidance())
    session = Session()
    for strict in (False, True, False):
        session.dispatch(Mode(strict))
        rendered = prompt.render(session=session)
        assert ("All of them." in rendered.text) is strict
        assert ("In full." in rendered.text) is strict
        assert (NOW in prompt.tools(session=session)) is strict
    assert "All of them." not in prompt.render().text
    assert prompt.sections[0].is_enabled(Guidance()) is False


@pytest.mark.parametrize("field", ["enabled", "visibility"])
def test_a_function_of_the_session_that_fails_without_one_says_what_to_pass(field: str) -> None:
    """It gets None where a prompt is rendered without a session; one that does not expect it is no riddle."""

    def strict(session: Any) -> Any:
        return session[Mode].latest() and SectionVisibility.FULL

    section = MarkdownSection(title="Rules", template="All.", summary="Few.", **cast("Any", {field: strict}))
    prompt = Prompt(name="strict", sections=[section])
    with pytest.raises(
        PromptRenderError, match=rf"{field}= raised TypeError: .*; it takes session, .*render\(session="
    ):
        prompt.render()
    session = Session()
    session.dispatch(Mode(True))
    assert "All." in prompt.render(session=session).text


def test_a_section_of_ones_own_may_know_the_session_or_not() -> None:
    """`is_enabled` of a subclass is called as it is written."""

    class Old(MarkdownSection[Any]):
        def is_enabled(self, params: Any = None) -> bool:
            return True

    class New(MarkdownSection[Any]):
        def is_enabled(self, params: Any = None, *, session: SessionProtocol | None = None) -> bool:
            return is_strict(session)

    prompt = Prompt(name="own", sections=[Old(title="Old", template=""), New(title="New", template="")])
    session = Session()
    assert prompt.render(session=session).text == "## 1. Old"
    session.dispatch(Mode(True))
    assert prompt.render(session=session).text == "## 1. Old\n\n## 2. New"


def test_the_older_sections_are_markdown_sections() -> None:
    """`TextSection` calls its template body, `ToolsSection` calls it description; neither lists tools."""
    text = TextSection("Guidance", "Use tools.", tools=[NOW])
    tools = ToolsSection(title="Tools", tools=[NOW], description="For ${audience}.", params=Guidance)
    assert isinstance(text, MarkdownSection)
    assert (text.template, text.tools) == ("Use tools.", (NOW,))
    assert tools.render_body(Guidance("all")) == "For all."
    assert ToolsSection(title="Tools", tools=[NOW]).render_body(None) == ""
    with pytest.raises(PromptValidationError, match="In the description of section 'tools'"):
        ToolsSection(title="Tools", tools=[NOW], description="${x}")


def test_a_plain_section_has_no_body() -> None:
    """The base class renders nothing, provides nothing and installs nothing."""
    section = Section[Any](title="Base")
    assert (section.render_body(None), section.resources(), section.body) == ("", {}, None)
    assert repr(section) == "<Section 'base': 0 tools, 0 children>"


def test_every_refusal_is_a_prompt_error() -> None:
    """One `except PromptError` catches what an agent author got wrong."""
    attempts: list[Callable[[], object]] = [
        lambda: MarkdownSection(title=""),
        lambda: MarkdownSection(title="T", template="${x}"),
        lambda: body("${value}", Holder(Broken())),
    ]
    for attempt in attempts:
        with pytest.raises(PromptError):
            attempt()
