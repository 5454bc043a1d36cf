"""Templates and prompts: what is refused, what binding does, resources, and typed answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar, cast

import pytest
from pydantic import Field

import weakincentives.prompts
from weakincentives.errors import (
    ParseError,
    PromptError,
    PromptRenderError,
    PromptValidationError,
    ResourcesClosedError,
    UnboundResourceError,
)
from weakincentives.prompt import (
    MarkdownSection,
    Prompt,
    PromptTemplate,
    RenderedPrompt,
    Section,
    Tool,
    ToolContext,
    ToolsSection,
)
from weakincentives.prompt.tool_context import PromptProtocol, RenderedPromptProtocol
from weakincentives.resources import Binding, ResourceRegistry, Scope
from weakincentives.session import Session, SessionProtocol

T = TypeVar("T")


@dataclass(frozen=True)
class City:
    name: str


@dataclass(frozen=True)
class Topic:
    name: str = "tea"


@dataclass(frozen=True)
class Review:
    verdict: str
    score: int = 0


class Client:
    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


class Files:
    pass


class Suite(MarkdownSection[Any]):
    """A section that brings a resource and a reducer."""

    def __init__(self, title: str, bindings: Mapping[type[Any], object], **options: Any) -> None:
        super().__init__(title=title, **options)
        self.bindings = bindings
        self.sessions: list[SessionProtocol] = []

    def resources(self) -> Mapping[type[Any], object]:
        return self.bindings

    def install(self, session: SessionProtocol) -> None:
        self.sessions.append(session)


def tool(name: str) -> Tool[Any, Any]:
    return Tool[None, str](name=name, description="A tool.")


def template(*sections: Section[Any], **options: Any) -> PromptTemplate[Any]:
    return PromptTemplate[Any](ns="tests", key="p", sections=sections, **options)


CITY = MarkdownSection[City](title="City", template="Go to ${name}.")


def test_equal_keys_beside_one_another_are_refused() -> None:
    """Paths must be unique; the same key elsewhere in the tree is fine."""
    with pytest.raises(PromptValidationError, match=r"have the path 'a.b'. Give one of them another key="):
        template(
            MarkdownSection(title="A", children=[MarkdownSection(title="B"), MarkdownSection(title="Other", key="b")])
        )
    with pytest.raises(PromptValidationError, match="have the path 'a'"):
        template(MarkdownSection(title="A"), MarkdownSection(title="A"))
    template(MarkdownSection(title="A", children=[MarkdownSection(title="A")]))


def test_equal_tool_names_are_refused_with_both_paths() -> None:
    """Also when one of the sections is disabled, since it may be enabled later."""
    with pytest.raises(
        PromptValidationError, match=r"'now' is declared twice: in section 'a.b' and in section 'c'"
    ) as e:
        template(
            MarkdownSection(title="A", children=[MarkdownSection(title="B", tools=[tool("now")])]),
            MarkdownSection(title="C", tools=[tool("now")], enabled=False),
        )
    assert (e.value.tool_name, e.value.section_path) == ("now", ("c",))


@pytest.mark.parametrize("name", ["open_sections", "read_section", "read_tool_result"])
def test_reserved_tool_names_are_refused(name: str) -> None:
    """WINK offers tools of these names itself."""
    with pytest.raises(PromptValidationError, match=f"{name!r} in section 'a' has a name that WINK uses itself"):
        template(MarkdownSection(title="A", tools=[tool(name)]))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"ns": "../up"}, "ns='../up' is not usable"),
        ({"ns": "/abs"}, "ns="),
        ({"ns": ""}, "ns="),
        ({"key": "a/b"}, "key='a/b'"),
        ({"key": ".."}, "key="),
        ({"key": "a\x00"}, "key="),
        ({"sections": CITY}, "takes a sequence"),
        ({"sections": ["text"]}, "takes Section instances"),
        ({"policies": [3]}, r"instances with check\(\)"),
    ],
)
def test_wrong_templates_are_refused(options: dict[str, Any], text: str) -> None:
    """Names that could not be file names, and arguments of the wrong kind."""
    with pytest.raises(PromptValidationError, match=text):
        PromptTemplate(**cast(dict[str, Any], {"ns": "tests", "key": "p", **options}))


def test_a_template_has_a_name() -> None:
    """Its key unless it is given one; a prompt shows both, its namespace and its sections."""
    agent = Prompt(PromptTemplate(ns="agents/review", key="main", name="Reviewer", sections=[CITY]))
    assert (agent.ns, agent.key, agent.name, agent.sections) == ("agents/review", "main", "Reviewer", (CITY,))
    assert Prompt(template()).name == "p"
    assert repr(agent) == "<Prompt agents/review/main: 1 sections, 0 tools>"
    assert repr(agent.template) == "<PromptTemplate agents/review/main: 1 sections, 0 tools>"


def test_a_prompt_can_make_its_template() -> None:
    """`Prompt(name=, sections=)` is the older form."""
    agent = Prompt(name="My agent", sections=[CITY])
    assert (agent.name, agent.key) == ("My agent", "My-agent")
    wrong: list[dict[str, Any]] = [{}, {"name": "x"}, {"sections": []}]
    for arguments in wrong:
        with pytest.raises(TypeError, match="Prompt takes a template"):
            Prompt(**arguments)
    with pytest.raises(TypeError, match=r"bind\(sections="):
        Prompt(template(), sections=[CITY])
    with pytest.raises(TypeError, match="takes a PromptTemplate, got str"):
        Prompt(cast(Any, "text"))


def test_bind_makes_another_prompt() -> None:
    """The one it is called on stays as it was."""
    first = Prompt(template(CITY))
    second = first.bind(City("Rome"))
    third = second.bind(City("Oslo"))
    assert first.params == {}
    assert second.render().text == "## 1. City\n\nGo to Rome."
    assert third.render().text == "## 1. City\n\nGo to Oslo."
    with pytest.raises(PromptRenderError):
        first.render()


def test_params_must_be_known() -> None:
    """The error lists the types there are, with the sections that take them."""
    agent = Prompt(template(CITY, MarkdownSection[Topic](title="Topic", template="${name}")))
    with pytest.raises(PromptValidationError, match=r"type Review. Known: City \(section 'city'\), Topic"):
        agent.bind(Review("x"))
    with pytest.raises(PromptRenderError, match="no section takes params of the type Review"):
        agent.render(Review("x"))
    with pytest.raises(PromptValidationError, match="two params of the type City"):
        agent.bind(City("a"), City("b"))
    with pytest.raises(PromptValidationError, match=r"got the class City; write City\(...\)"):
        agent.bind(City)
    with pytest.raises(PromptValidationError, match="Known: none"):
        Prompt(template()).bind(City("a"))


@pytest.mark.parametrize("name", ["extra_tools", "tools"])
def test_tools_cannot_be_bound(name: str) -> None:
    """They belong on a section, and the error says so."""
    with pytest.raises(TypeError, match="tools live on sections"):
        Prompt(template()).bind(**cast(dict[str, Any], {name: [tool("x")]}))
    with pytest.raises(TypeError, match="has no argument 'wrong'"):
        Prompt(template()).bind(wrong=1)


def test_sections_can_be_bound() -> None:
    """They come after the template's, and are checked with them."""
    base = Prompt(template(CITY, policies=[Allow()]))
    more = base.bind(City("Rome"), sections=[ToolsSection(title="Tools", tools=[tool("now")])])
    assert more.render().text == "## 1. City\n\nGo to Rome.\n\n## 2. Tools"
    assert [each.name for each in more.tools()] == ["now"]
    assert len(more.policies_for("now")) == 1
    assert base.tools() == ()
    with pytest.raises(PromptValidationError, match="declared twice: in section 'tools' and in section 'again'"):
        more.bind(sections=[ToolsSection(title="Again", tools=[tool("now")])])
    typed = base.bind(Topic("x"), sections=[MarkdownSection[Topic](title="Topic", template="${name}")])
    assert typed.bind(City("Oslo")).render().text.endswith("## 2. Topic\n\nx")


class Allow:
    def check(self, tool_name: str, params: object, context: ToolContext) -> None:
        return None


def test_resources_are_merged_from_everywhere() -> None:
    """The template's, the sections' and the bound ones are one registry; a later bind wins over an earlier one."""
    client, other = Client(), Client()
    agent = Prompt(template(Suite("S", {Files: Files()}), resources={str: "template", Client: client}))
    assert agent.resources.get(str) == "template"
    bound = agent.bind(resources={str: "bound"}).bind(resources=ResourceRegistry.build({Client: other}))
    assert (bound.resources.get(str), bound.resources.get(Client)) == ("bound", other)
    assert Files in bound.resources
    assert agent.resources.get(Client) is client
    assert agent.resources.get(int, None) is None
    with pytest.raises(UnboundResourceError, match="Nothing is bound for int"):
        agent.resources.get(int)
    with pytest.raises(TypeError, match="takes a mapping"):
        agent.bind(resources=cast(Any, [client]))


def test_two_bindings_of_one_type_name_both_places() -> None:
    """Two sections, a section and the template, a section and bind: always both are named."""
    first, second = Suite("A", {Files: Files()}), Suite("B", {Files: Files()})
    with pytest.raises(PromptValidationError, match=r"Files is bound twice: by section 'a' and by section 'o.b'"):
        template(first, MarkdownSection(title="O", children=[second]))
    with pytest.raises(PromptValidationError, match="by the template and by section 'a'"):
        template(first, resources={Files: Files()})
    with pytest.raises(PromptValidationError, match=r"by bind\(resources=\) and by section 'a'"):
        Prompt(template(first)).bind(resources={Files: Files()})
    with pytest.raises(PromptValidationError, match="by section 'a' and by section 'b'"):
        Prompt(template(first)).bind(sections=[second])
    template(first, Suite("B", {Files: Files()}, enabled=False))


def test_resources_are_entered_as_often_as_one_likes() -> None:
    """The outermost block closes what was built, once; what was handed in stays open; it may be entered anew."""
    given = Client()
    agent = Prompt(template()).bind(resources={Client: given, Files: Binding(Files, lambda r: Built())})
    with agent.resources as resources:
        assert resources is agent.resources
        first = resources.get(Files)
        with agent.resources:
            assert agent.resources.get(Files) is first
        assert resources.is_open
        assert isinstance(first, Built)
        assert first.closed == 0
    assert (first.closed, given.closed, agent.resources.is_open) == (1, 0, False)
    with agent.resources:
        assert agent.resources.get(Files) is not first
    assert "not entered" in repr(agent.resources)


class Built(Files):
    closed = 0

    def close(self) -> None:
        self.closed += 1


def test_resources_that_are_not_entered_give_only_what_was_handed_in() -> None:
    """A provider does not run outside a block, since the result would never be closed."""
    agent = Prompt(template()).bind(resources={str: "given", Files: Binding(Files, lambda r: Built())})
    assert agent.resources.get(str) == "given"
    with pytest.raises(ResourcesClosedError):
        agent.resources.get(Files)


def test_tool_scopes_come_from_the_same_resources() -> None:
    """A TOOL_CALL resource is fresh for each scope."""
    agent = Prompt(template()).bind(resources={Files: Binding(Files, lambda r: Built(), scope=Scope.TOOL_CALL)})
    with agent.resources, agent.resources.tool_scope() as one, agent.resources.tool_scope() as two:
        assert one.get(Files) is not two.get(Files)


async def _use_async(agent: Prompt[Any]) -> object:
    async with agent.resources:
        built = await agent.resources.aget(Files)
        assert await agent.resources.aget(int, 3) == 3
    assert await agent.resources.aget(str) == "given"
    assert await agent.resources.aget(int, None) is None
    return built


def test_resources_work_in_async_code() -> None:
    """`async with` and `aget` do the same."""
    import asyncio

    async def provide(_: object) -> Files:
        return Built()

    agent = Prompt(template()).bind(resources={str: "given", Files: Binding(Files, provide)})
    built = asyncio.run(_use_async(agent))
    assert isinstance(built, Built)
    assert built.closed == 1


def test_two_prompts_do_not_close_one_another() -> None:
    """Each bound prompt has a context of its own."""
    base = Prompt(template()).bind(resources={Files: Binding(Files, lambda r: Built())})
    other = base.bind()
    with base.resources:
        mine = base.resources.get(Files)
        with other.resources:
            theirs = other.resources.get(Files)
        assert isinstance(mine, Built)
        assert isinstance(theirs, Built)
        assert (mine.closed, theirs.closed) == (0, 1)


def test_install_reaches_every_section() -> None:
    """The evaluating session is prepared by all sections, nested and bound ones included."""
    inner, added, session = Suite("Inner", {}), Suite("Added", {}), Session()
    agent = Prompt(template(MarkdownSection(title="O", children=[inner]))).bind(sections=[added])
    agent.install(session)
    agent.install(session)
    assert inner.sessions == added.sessions == [session, session]


def test_the_answer_type_is_part_of_the_prompt() -> None:
    """Its schema is in the text, on the prompt and on what was rendered; the answer is parsed into it."""
    agent = Prompt(PromptTemplate[Review](ns="t", key="r", sections=[MarkdownSection(title="Task", template="Go.")]))
    rendered = agent.render()
    assert agent.output_type is rendered.output_type is Review
    assert agent.output_schema == rendered.output_schema
    assert rendered.output_schema is not None
    assert set(rendered.output_schema["properties"]) == {"verdict", "score"}
    assert "## Response Format" in rendered.text
    assert '"verdict"' in rendered.text
    assert agent.parse_output('{"verdict": "good", "score": 3}') == Review("good", 3)


def test_instructions_can_be_left_out() -> None:
    """By the template, or for one rendering; the schema is there all the same."""
    sections = [MarkdownSection(title="Task", template="Go.")]
    loud = Prompt(PromptTemplate[Review](ns="t", key="r", sections=sections))
    quiet = Prompt(PromptTemplate[Review](ns="t", key="r", sections=sections, output_instructions=False))
    assert loud.render(output_instructions=False).text == quiet.render().text == "## 1. Task\n\nGo."
    assert "Response Format" in quiet.render(output_instructions=True).text
    assert quiet.output_schema is not None


@pytest.mark.parametrize(
    "text",
    [
        '{"verdict": "ok"}',
        '  \n{"verdict": "ok"}\n',
        '```json\n{"verdict": "ok"}\n```',
        '```\n{"verdict": "ok"}\n```',
        'Here it is:\n\n```json\n{"verdict": "ok"}\n```\nDone.',
        'Cut off:\n```json\n{"verdict": "ok"}',
        '3 things first:\n```JSON\n{"verdict":\n "ok"}\n```',
        '```python\nprint(1)\n```\n```json\n{"verdict": "ok"}\n```',
    ],
)
def test_answers_are_json_or_one_fenced_block(text: str) -> None:
    """Prose around one block is ignored."""
    assert Prompt(PromptTemplate[Review](ns="t", key="r")).parse_output(text) == Review("ok")


def test_json_that_holds_fences_is_taken_as_it_is() -> None:
    """A fence inside a JSON text is part of it."""
    agent = Prompt(PromptTemplate[Review](ns="t", key="r"))
    assert agent.parse_output('{"verdict": "use\\n```json\\n{}\\n```"}').verdict == "use\n```json\n{}\n```"


def test_wrong_answers_list_everything() -> None:
    """All failures at once, strictly: nothing is coerced, unknown fields are refused."""
    agent = Prompt(PromptTemplate[Review](ns="t", key="r"))
    with pytest.raises(ParseError) as caught:
        agent.parse_output('{"verdict": 1, "score": "2", "other": 3}')
    assert [failure.path for failure in caught.value.failures] == ["verdict", "score", "other"]
    with pytest.raises(ParseError, match="Invalid JSON"):
        agent.parse_output("I could not do it.")
    with pytest.raises(ParseError, match="2 fenced blocks"):
        agent.parse_output("```json\n{}\n```\nor\n```json\n{}\n```")
    with pytest.raises(ParseError):
        agent.parse_output("")


def test_answers_may_be_lists_or_text() -> None:
    """`list[X]` is parsed too; `str` and no type leave the text alone, and without a type there is nothing to parse."""
    many = Prompt(PromptTemplate[list[Review]](ns="t", key="r"))
    assert many.parse_output('[{"verdict": "a"}, {"verdict": "b"}]') == [Review("a"), Review("b")]
    assert many.output_schema is not None
    assert many.output_schema["type"] == "array"
    plain = Prompt(PromptTemplate[str](ns="t", key="r"))
    assert (plain.parse_output("hello"), plain.output_schema, plain.render().text) == ("hello", None, "")
    with pytest.raises(PromptError, match="has no output type"):
        Prompt(PromptTemplate(ns="t", key="r")).parse_output("{}")


def test_answers_may_be_unions_and_annotated() -> None:
    """Whatever has a schema will do."""
    either = Prompt(cast(Any, PromptTemplate)[Review | City](ns="t", key="r"))
    assert either.parse_output('{"name": "Rome"}') == City("Rome")
    assert either.parse_output('{"verdict": "x"}') == Review("x")
    few = Prompt(cast(Any, PromptTemplate)[Annotated[list[int], Field(max_length=2)]](ns="t", key="r"))
    assert few.parse_output("[1, 2]") == [1, 2]
    with pytest.raises(ParseError, match="at most 2 items"):
        few.parse_output("[1, 2, 3]")


def test_a_section_must_give_a_mapping_of_resources() -> None:
    """Anything else is refused when the template is built."""
    with pytest.raises(TypeError, match="takes a mapping"):
        template(Suite("S", cast(Any, [Files()])))


def test_an_answer_type_without_a_schema_is_refused() -> None:
    """When the template is built, not when the answer comes."""
    with pytest.raises(PromptValidationError, match="output type of prompt 'r' has no JSON form"):
        PromptTemplate[Files](ns="t", key="r")


def test_templates_can_be_subclassed() -> None:
    """A subclass may fix the answer type."""

    class Reviews(PromptTemplate[Review]):
        pass

    class Many(PromptTemplate[T], Generic[T]):
        pass

    assert Prompt(Reviews(ns="t", key="r")).output_type is Review
    assert Prompt(Many[City](ns="t", key="r")).output_type is City


def test_prompts_are_what_handlers_may_rely_on() -> None:
    """They satisfy the protocols of the tool context."""
    agent = Prompt(template())
    assert isinstance(agent, PromptProtocol)
    assert isinstance(agent.render(), RenderedPromptProtocol)
    assert isinstance(agent.render(), RenderedPrompt)


def test_the_older_import_path_has_the_same_names() -> None:
    """`weakincentives.prompts` re-exports, nothing more."""
    assert weakincentives.prompts.Prompt is Prompt
    assert set(weakincentives.prompts.__all__) >= {"Prompt", "TextSection", "Tool", "ToolResult", "ToolsSection"}
