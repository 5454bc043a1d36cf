"""Progressive disclosure: summaries, the two tools that look into them, and what the session remembers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from weakincentives.errors import PromptRenderError, VisibilityExpansionRequired
from weakincentives.prompt import (
    MarkdownSection,
    Prompt,
    PromptTemplate,
    RenderedPrompt,
    Section,
    SectionVisibility,
    Tool,
    ToolContext,
    set_visibility,
)
from weakincentives.prompt.visibility import SetVisibility, VisibilityOverrides
from weakincentives.session import Session, SessionProtocol, SlicePolicy

FULL, SUMMARY = SectionVisibility.FULL, SectionVisibility.SUMMARY


@dataclass(frozen=True)
class Reader:
    level: str = "novice"


def tool(name: str) -> Tool[Any, Any]:
    return Tool[None, str](name=name, description="A tool.")


def reference(**options: Any) -> MarkdownSection[Any]:
    return MarkdownSection(
        title="Reference",
        template="All the details.",
        summary="How things work.",
        visibility=options.pop("visibility", SUMMARY),
        tools=[tool("look")],
        children=[
            MarkdownSection(title="Style", template="Use tabs.", tools=[tool("style")]),
            MarkdownSection(title="Deep", template="Abyss.", summary="Depth.", visibility=SUMMARY),
        ],
        **options,
    )


def prompt(*sections: Section[Any]) -> Prompt[Any]:
    return Prompt(PromptTemplate[Any](ns="t", key="v", sections=sections))


AGENT = prompt(MarkdownSection(title="Task", template="Go.", tools=[tool("go")]), reference())


def call(name: str, arguments: dict[str, Any], rendered: RenderedPrompt[Any], session: Session | None = None) -> Any:
    offered = rendered.tool_map[name].tool
    context = ToolContext(prompt=AGENT, rendered_prompt=rendered, session=session or Session())
    return offered.call(offered.parse(arguments), context)


def names(rendered: RenderedPrompt[Any]) -> list[str]:
    return [each.name for each in rendered.tools]


def test_a_summary_hides_body_children_and_tools() -> None:
    """The model reads the summary and how to see more; what is below is not there."""
    rendered = AGENT.render()
    assert rendered.text == (
        "## 1. Task\n\nGo.\n\n## 2. Reference\n\nHow things work.\n\n"
        '_This is a summary. For its text and its tools call `open_sections` with section_keys ["reference"]; '
        'to only read it, call `read_section` with section_key "reference"._'
    )
    assert rendered.summarised == ("reference",)
    assert names(rendered) == ["go", "open_sections", "read_section"]
    assert [each.name for each in AGENT.tools()] == names(rendered)


def test_the_tools_are_offered_only_while_there_are_summaries() -> None:
    """A prompt without summaries has neither."""
    assert names(prompt(MarkdownSection(title="Task", tools=[tool("go")])).render()) == ["go"]
    assert names(prompt(reference(visibility=FULL, enabled=False)).render()) == []


def test_open_sections_asks_for_an_expansion() -> None:
    """It raises with the paths, each once, and the reason."""
    arguments = {"section_keys": ["reference", "reference"], "reason": "need details"}
    with pytest.raises(VisibilityExpansionRequired, match="reference: need details") as caught:
        call("open_sections", arguments, AGENT.render())
    assert (caught.value.section_keys, caught.value.reason) == (("reference",), "need details")


@pytest.mark.parametrize("keys", [["nope"], ["reference", "task"], ["reference.style"], []])
def test_open_sections_lists_what_can_be_opened(keys: list[str]) -> None:
    """Unknown, open and hidden sections are refused, with the keys there are and what to call."""
    result = call("open_sections", {"section_keys": keys, "reason": "r"}, AGENT.render())
    assert not result.success
    assert "Summarised sections: reference\nCall open_sections with one of these keys" in result.message
    for key in keys:
        assert key == "reference" or key in result.message


def test_without_summaries_there_is_nothing_to_open() -> None:
    """A call made on an outdated prompt is answered, not crashed."""
    summarised = AGENT.render()
    opening = summarised.tool_map["open_sections"].tool
    params = opening.parse({"section_keys": ["reference"], "reason": "r"})
    for rendered in (None, prompt().render()):
        result = opening.call(params, ToolContext(rendered_prompt=rendered))
        assert not result.success
        assert "Every section is open already" in result.message


def test_read_section_shows_everything_below_and_changes_nothing() -> None:
    """The whole subtree in full, numbered as in the prompt; the section stays a summary."""
    session = Session()
    rendered = AGENT.render(session=session)
    result = call("read_section", {"section_key": "reference"}, rendered, session)
    assert result.value == (
        "## 2. Reference\n\nAll the details.\n\n### 2.1 Style\n\nUse tabs.\n\n### 2.2 Deep\n\nAbyss."
    )
    assert AGENT.render(session=session).text == rendered.text
    assert rendered.tool_map["read_section"].tool.annotations.read_only
    refused = call("read_section", {"section_key": "task"}, rendered, session)
    assert not refused.success
    assert "Summarised sections: reference" in refused.message
    with pytest.raises(KeyError, match="is not a summarised section"):
        rendered.read_section("task")


def test_reading_a_nested_summary_keeps_its_number() -> None:
    """The numbers are those of the prompt, whatever is disabled before."""
    nested = prompt(
        MarkdownSection(title="Off", enabled=False),
        MarkdownSection(
            title="A", children=[MarkdownSection(title="Off", enabled=False), MarkdownSection(title="B"), reference()]
        ),
    ).render()
    assert nested.read_section("a.reference").startswith("### 1.2 Reference\n\nAll the details.\n\n#### 1.2.1 Style")


def test_opened_sections_show_in_the_session_they_were_opened_in() -> None:
    """Children and tools appear; a nested summary stays one until it is opened too."""
    session = Session()
    set_visibility(session, ["reference"])
    rendered = AGENT.render(session=session)
    assert "All the details.\n\n### 2.1 Style\n\nUse tabs.\n\n### 2.2 Deep\n\nDepth." in rendered.text
    assert rendered.summarised == ("reference.deep",)
    assert names(rendered) == ["go", "look", "style", "open_sections", "read_section"]
    set_visibility(session, ["reference.deep"])
    opened = AGENT.render(session=session)
    assert (opened.summarised, names(opened)) == ((), ["go", "look", "style"])
    assert "Abyss." in opened.text
    assert AGENT.render().summarised == ("reference",)


def test_visibility_is_state_of_the_session() -> None:
    """A restore takes it back; it survives saving."""
    session = Session()
    AGENT.install(session)
    before = session.snapshot()
    session.dispatch(SetVisibility(("reference",)))
    assert session[VisibilityOverrides].policy is SlicePolicy.STATE
    saved = Session.from_json(session.to_json(), types=[VisibilityOverrides])
    assert AGENT.render(session=saved).summarised == ("reference.deep",)
    session.restore(before)
    assert AGENT.render(session=session).summarised == ("reference",)


def test_sections_can_be_closed_again() -> None:
    """The session's word wins over the section's, in both directions."""
    agent, session = prompt(reference(visibility=FULL)), Session()
    assert agent.render(session=session).summarised == ("reference.deep",)
    set_visibility(session, ["reference"], SUMMARY)
    assert agent.render(session=session).summarised == ("reference",)


def test_visibility_may_depend_on_params() -> None:
    """A function of the params, or of nothing, is asked at each rendering; summaries have placeholders."""
    agent = prompt(
        MarkdownSection[Reader](
            title="Basics",
            template="Long.",
            summary="Short for ${level}.",
            visibility=lambda reader: FULL if reader.level == "novice" else SUMMARY,
        )
    )
    assert "Long." in agent.render().text
    assert "Short for expert." in agent.render(Reader("expert")).text
    assert prompt(reference(visibility=lambda: SUMMARY)).render().summarised == ("reference",)


def test_a_summary_that_is_not_there_is_an_error() -> None:
    """Whatever asks for it: a function, or the session."""
    agent = prompt(MarkdownSection(title="A", visibility=lambda: SUMMARY))
    with pytest.raises(PromptRenderError, match="it is to be shown as a summary but has none; give it summary="):
        agent.render()
    session = Session()
    set_visibility(session, ["a"], SUMMARY)
    with pytest.raises(PromptRenderError, match="give it summary="):
        prompt(MarkdownSection(title="A")).render(session=session)


def test_visibility_functions_must_answer_properly() -> None:
    """Something else than a `SectionVisibility`, or an exception, is an error that names the section."""

    def wrong() -> Any:
        return "summary"

    def fails() -> SectionVisibility:
        raise ZeroDivisionError

    with pytest.raises(PromptRenderError, match="must give a SectionVisibility, got 'summary'"):
        prompt(MarkdownSection(title="A", visibility=wrong)).render()
    with pytest.raises(PromptRenderError, match="visibility= raised ZeroDivisionError"):
        prompt(MarkdownSection(title="A", visibility=fails)).render()


def test_a_summary_without_tools_says_so() -> None:
    """The note promises tools only where there are some."""
    agent = prompt(MarkdownSection(title="A", template="x", summary="s", visibility=SUMMARY))
    assert "For its text call `open_sections`" in agent.render().text


def test_hidden_sections_are_not_rendered() -> None:
    """What is below a summary costs nothing and cannot fail; reading it shows the session as it is then."""

    class Live(Section[Any]):
        def render_state(self, session: SessionProtocol) -> str:
            return f"latest: {session[str].latest()}"

        def render_body(self, params: Any, *, session: SessionProtocol | None = None) -> str:
            assert session is not None
            return "live"

    session = Session()
    top = MarkdownSection(title="Top", summary="s", visibility=SUMMARY, children=[Live(title="Live")])
    rendered = prompt(top).render(session=session)
    session.dispatch("late")
    assert rendered.read_section("top") == "## 1. Top\n\n### 1.1 Live\n\nlive\n\nlatest: late"


def test_overrides_know_what_was_set_last() -> None:
    """The newest word on a section counts; others stay."""
    shown = VisibilityOverrides().showing(["a", "b"], FULL).showing(["a"], SUMMARY)
    assert (shown.get("a"), shown.get("b"), shown.get("c")) == (SUMMARY, FULL, None)
