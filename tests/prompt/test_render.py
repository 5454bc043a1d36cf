"""Rendering: headings, numbers, enablement, tools, policies, and what a section's own code may do."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weakincentives.errors import PromptRenderError
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate, Section, Tool, ToolContext, ToolsSection
from weakincentives.session import Session, SessionProtocol


@dataclass(frozen=True)
class Flags:
    deploy: bool = True
    name: str = "web"


@dataclass(frozen=True)
class Required:
    city: str


@dataclass(frozen=True)
class Stamp:
    number: int = field(default_factory=count().__next__)


@dataclass(frozen=True)
class Named:
    """A policy that allows everything."""

    name: str

    def check(self, tool_name: str, params: object, context: ToolContext) -> None:
        return None


def tool(name: str) -> Tool[Any, Any]:
    return Tool[None, str](name=name, description="A tool.")


def prompt(*sections: Section[Any], policies: Any = ()) -> Prompt[Any]:
    return Prompt(PromptTemplate[Any](ns="tests", key="p", sections=sections, policies=policies))


def test_headings_are_numbered_by_their_place() -> None:
    """Each level has one more number sign and one more number."""
    text = prompt(
        MarkdownSection(
            title="Task",
            template="Do it.",
            children=[
                MarkdownSection(title="First", template="a", children=[MarkdownSection(title="Deep", template="b")]),
                MarkdownSection(title="Second", template="c"),
            ],
        ),
        MarkdownSection(title="Style", template="Be kind."),
    ).render()
    assert (
        str(text)
        == text.text
        == (
            "## 1. Task\n\nDo it.\n\n### 1.1 First\n\na\n\n#### 1.1.1 Deep\n\nb\n\n### 1.2 Second\n\nc\n\n"
            "## 2. Style\n\nBe kind."
        )
    )


def test_headings_stop_at_six_signs() -> None:
    """Markdown has no more; the numbers go on."""
    section = MarkdownSection(title="L7")
    for level in range(6, 0, -1):
        section = MarkdownSection(title=f"L{level}", children=[section])
    lines = prompt(section).render().text.split("\n\n")
    assert lines[-2:] == ["###### 1.1.1.1.1.1 L6", "###### 1.1.1.1.1.1.1 L7"]


def test_a_disabled_section_takes_its_subtree_out() -> None:
    """Text, numbers, tools and policies go with it."""
    rendered = prompt(
        MarkdownSection(title="A", tools=[tool("a")]),
        MarkdownSection(
            title="B", enabled=False, tools=[tool("b")], children=[MarkdownSection(title="C", tools=[tool("c")])]
        ),
        MarkdownSection(title="D", tools=[tool("d")]),
    ).render()
    assert rendered.text == "## 1. A\n\n## 2. D"
    assert [each.name for each in rendered.tools] == ["a", "d"]
    assert list(rendered.tool_map) == ["a", "d"]


def test_enabled_functions_see_the_params() -> None:
    """The same prompt shows a section for one value and not for another, `tools()` included."""
    agent = prompt(
        MarkdownSection[Flags](title="Deploy", enabled=lambda flags: flags.deploy, tools=[tool("deploy")]),
        MarkdownSection(title="End"),
    )
    assert agent.render(Flags(deploy=True)).text == "## 1. Deploy\n\n## 2. End"
    assert agent.render(Flags(deploy=False)).text == "## 1. End"
    assert [each.name for each in agent.tools(Flags(deploy=True))] == ["deploy"]
    assert agent.tools(Flags(deploy=False)) == ()


def test_is_enabled_may_be_overridden() -> None:
    """A subclass decides for itself, with its params."""

    class Mine(MarkdownSection[Flags]):
        def is_enabled(self, params: Flags | None = None) -> bool:
            assert params is not None
            return params.name == "web"

    agent = prompt(Mine(title="Web", tools=[tool("web")]))
    assert agent.tools(Flags(name="web")) != ()
    assert agent.tools(Flags(name="cli")) == ()


def test_tools_come_in_declaration_order_depth_first() -> None:
    """A section's own tools come before those of its children, those before the next section's."""
    agent = prompt(
        MarkdownSection(
            title="A",
            tools=[tool("z"), tool("b")],
            children=[ToolsSection(title="C", tools=[tool("c")]), MarkdownSection(title="E", tools=[tool("a")])],
        ),
        MarkdownSection(title="B", tools=[tool("d")]),
    )
    names = ["z", "b", "c", "a", "d"]
    assert [each.name for each in agent.tools()] == names
    assert [each.name for each in agent.render().tools] == names


def test_policies_go_from_the_inside_out() -> None:
    """A tool's policies: its section's in order, those of the sections around it, the template's."""
    inner, second, outer, top = Named("inner"), Named("second"), Named("outer"), Named("top")
    agent = prompt(
        MarkdownSection(
            title="Outer",
            tools=[tool("x")],
            policies=[outer],
            children=[MarkdownSection(title="Inner", tools=[tool("y")], policies=[inner, second])],
        ),
        MarkdownSection(title="Free", tools=[tool("z")]),
        policies=[top],
    )
    assert agent.policies_for("y") == (inner, second, outer, top)
    assert agent.policies_for("x") == (outer, top)
    assert agent.policies_for("z") == (top,)
    rendered = agent.render()
    assert rendered.policies_for("y") == rendered.tool_map["y"].policies == agent.policies_for("y")
    assert rendered.tool_map["y"].section_path == ("outer", "inner")
    with pytest.raises(KeyError, match="declares no tool 'w'; it has: x, y, z"):
        agent.policies_for("w")


def test_missing_params_are_named() -> None:
    """The error says which section needs what, and how to give it."""
    agent = prompt(MarkdownSection(title="Outer", children=[MarkdownSection[Required](title="In", template="${city}")]))
    with pytest.raises(PromptRenderError, match=r"Section 'outer.in' .* needs a Required; pass one to bind") as caught:
        agent.render()
    assert (caught.value.section_path, caught.value.dataclass_type) == (("outer", "in"), Required)


def test_params_are_found_by_type() -> None:
    """Bound, given to `render`, defaults of the section, defaults of the fields: the first there is."""
    agent = prompt(
        MarkdownSection[Required](title="A", template="${city}", default_params=Required("Rome")),
        MarkdownSection[Flags](title="B", template="${name}"),
    )
    assert agent.render().text == "## 1. A\n\nRome\n\n## 2. B\n\nweb"
    bound = agent.bind(Required("Paris"))
    assert "Paris" in bound.render().text
    assert "Oslo" in bound.render(Required("Oslo"), Flags(name="x")).text
    assert "Paris" in bound.render().text
    assert "Rome" in agent.render().text


def test_defaults_are_made_anew_for_each_rendering() -> None:
    """A field's default factory runs each time, so that it may be a time or an id."""
    agent = prompt(MarkdownSection[Stamp](title="A", template="${number}"))
    assert agent.render().text != agent.render().text


def test_defaults_that_cannot_be_made_are_a_render_error() -> None:
    """A params type that raises without arguments is named with its section."""

    @dataclass
    class Picky:
        limit: int = 0

        def __post_init__(self) -> None:
            raise ValueError("limit must be positive")

    with pytest.raises(PromptRenderError, match="the default of its params raised ValueError: limit must be positive"):
        prompt(MarkdownSection[Picky](title="A", template="${limit}")).render()


def test_params_that_nothing_shows_are_not_asked_for() -> None:
    """A type argument alone makes no demand."""
    assert prompt(MarkdownSection[Required](title="A", template="fixed")).render().text == "## 1. A\n\nfixed"


def test_enabled_needs_its_params() -> None:
    """A function of params cannot be asked without them."""
    agent = prompt(MarkdownSection[Required](title="A", enabled=lambda params: params.city == "Rome"))
    with pytest.raises(PromptRenderError, match="needs a Required"):
        agent.tools()
    assert agent.tools(Required("Rome")) == ()


class Live(Section[Any]):
    """A section with everything of its own."""

    def __init__(self, **options: Any) -> None:
        super().__init__(title="Live", **options)
        self.fail: str | None = None

    def _maybe(self, where: str) -> None:
        if self.fail == where:
            raise LookupError("boom")

    def is_enabled(self, params: Any = None) -> bool:
        self._maybe("enabled=")
        return True

    def render_body(self, params: Any, *, session: SessionProtocol | None = None) -> str:
        self._maybe("render_body")
        return "alone" if session is None else f"with {session[str].count()} texts"

    def render_state(self, session: SessionProtocol) -> str:
        self._maybe("render_state")
        return f"latest: {session[str].latest()}"


def test_a_section_may_show_the_session() -> None:
    """The body and the state below it are made at each rendering; without a session there is no state."""
    agent, session = prompt(Live()), Session()
    assert agent.render().text == "## 1. Live\n\nalone"
    session.dispatch("hello")
    assert agent.render(session=session).text == "## 1. Live\n\nwith 1 texts\n\nlatest: hello"


@pytest.mark.parametrize("where", ["enabled=", "render_body", "render_state"])
def test_what_a_section_raises_is_a_render_error(where: str) -> None:
    """It names the section and the method, and keeps the cause."""
    section = Live()
    section.fail = where
    with pytest.raises(PromptRenderError, match=f"Section 'live' .*{where} raised LookupError: boom") as caught:
        prompt(section).render(session=Session())
    assert isinstance(caught.value.__cause__, LookupError)


def test_a_prompt_error_passes_as_it_is() -> None:
    """A section that says itself what is wrong is not said over."""

    class Careful(Section[Any]):
        def render_body(self, params: Any, *, session: SessionProtocol | None = None) -> str:
            raise PromptRenderError("my words")

    with pytest.raises(PromptRenderError, match=r"^my words$"):
        prompt(Careful(title="C")).render()


def test_a_body_must_be_text() -> None:
    """Anything else is an error that says what came."""

    class Wrong(Section[Any]):
        def render_body(self, params: Any, *, session: SessionProtocol | None = None) -> Any:
            return 3

    with pytest.raises(PromptRenderError, match="render_body must return text, got int"):
        prompt(Wrong(title="W")).render()


Shape = tuple[bool, list[Any]]


def _branch(inner: st.SearchStrategy[Shape]) -> st.SearchStrategy[Shape]:
    return st.tuples(st.booleans(), st.lists(inner, max_size=4))


trees: st.SearchStrategy[Shape] = st.recursive(st.tuples(st.booleans(), st.just(list[Any]())), _branch, max_leaves=20)


@given(st.lists(trees, min_size=1, max_size=5))
def test_numbers_and_tools_match_a_naive_model(shape: list[Shape]) -> None:
    """For any tree: numbers count the enabled siblings, and the tools are those of the enabled sections."""
    names = count()
    lines: list[str] = []
    tools: list[str] = []

    def build(node: Shape, prefix: str, place: int, visible: bool) -> Section[Any]:
        on, below = node
        name = f"t{next(names)}"
        shown = visible and on
        number = f"{prefix}{place}"
        if shown:
            depth = number.count(".") + 2
            lines.append(f"{'#' * min(depth, 6)} {number if '.' in number else number + '.'} {name}")
            tools.append(name)
        children: list[Section[Any]] = []
        inner_place = 0
        for child in below:
            inner_place += child[0]
            children.append(build(child, f"{number}.", inner_place, shown))
        return MarkdownSection(title=name, tools=[tool(name)], enabled=lambda: on, children=children)

    sections: list[Section[Any]] = []
    place = 0
    for node in shape:
        place += node[0]
        sections.append(build(node, "", place, True))
    rendered = prompt(*sections).render()
    assert rendered.text == "\n\n".join(lines)
    assert [each.name for each in rendered.tools] == tools
