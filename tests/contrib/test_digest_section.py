"""The digest in a prompt: a summary first, the whole of it through `read_section`, true of the files at that time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from weakincentives.adapters import ToolExecutor
from weakincentives.contrib.tools import (
    DigestConfig,
    WorkspaceDigest,
    WorkspaceDigestSection,
    build_digest,
    refresh_digest,
)
from weakincentives.errors import PromptValidationError
from weakincentives.filesystem import Filesystem, InMemoryFilesystem
from weakincentives.prompt import (
    MarkdownSection,
    Prompt,
    Section,
    SectionVisibility,
    Tool,
    ToolContext,
    ToolResult,
    set_visibility,
)
from weakincentives.runtime import ToolCall, ToolReply
from weakincentives.session import Session

KEY = "workspace-digest"


def files() -> InMemoryFilesystem:
    return InMemoryFilesystem({"src/main.py": "x", "README.md": "# Teapot"})


def prompt(*sections: Section[Any]) -> Prompt[Any]:
    return Prompt(name="p", sections=sections)


def read(section: WorkspaceDigestSection, session: Session, key: str = KEY) -> ToolReply:
    with ToolExecutor(prompt=prompt(section), session=session) as executor:
        return executor.execute(ToolCall("1", "read_section", {"section_key": key}))


def test_it_is_a_summary_until_it_is_read() -> None:
    """The prompt has the summary, how things were when it was written, and no more; `read_section` has it all."""
    fs = files()
    section = WorkspaceDigestSection(source=fs)
    session = Session()
    rendered = prompt(section).render(session=session)
    assert rendered.summarised == (KEY,)
    assert "Right now: 2 files in 1 directory, 9 B; mostly Python." in rendered.text
    assert "**Languages**" not in rendered.text
    assert build_digest(fs).body in read(section, session).text


def test_it_can_be_opened() -> None:
    """Once the section is opened, the digest stands in the prompt."""
    section, session = WorkspaceDigestSection(source=files()), Session()
    set_visibility(session, [KEY])
    assert "**Key files**\n\n- `README.md`: Teapot" in prompt(section).render(session=session).text


def test_what_the_model_reads_is_true_now() -> None:
    """Files written during the evaluation show in the digest at once; nothing is written to the session by reading."""
    fs, session = files(), Session()
    section = WorkspaceDigestSection(source=fs)
    with ToolExecutor(prompt=prompt(section), session=session) as executor:
        fs.write("lib.rs", "x" * 100)
        before = session.snapshot()
        reply = executor.execute(ToolCall("1", "read_section", {"section_key": KEY}))
        assert session.changes(before) == ()
    assert "- Rust: 1 file, 100 B" in reply.text


def test_the_session_has_it_from_the_start_and_wherever_it_is_evaluated() -> None:
    """The given session gets the digest with the section, the evaluating one before the evaluation."""
    given, evaluating, fs = Session(), Session(), files()
    section = WorkspaceDigestSection(session=given, source=fs)
    assert given[WorkspaceDigest].latest() == build_digest(fs)
    prompt(section).install(evaluating)
    assert evaluating[WorkspaceDigest].latest() == build_digest(fs)
    fs.write("new.py", "x")
    before = given.snapshot()
    for _ in range(2):
        prompt(section).install(evaluating)
        assert evaluating[WorkspaceDigest].latest() == build_digest(fs)
    assert evaluating[WorkspaceDigest].count() == 1
    assert given.changes(before) == ()


def test_without_a_source_it_shows_what_the_session_holds() -> None:
    """The digest that `refresh_digest` kept in the session is shown; without one the section says so."""
    session = Session()
    section = WorkspaceDigestSection(session=session)
    assert "Nothing is known about the workspace yet." in read(section, session).text
    digest = refresh_digest(session, files())
    assert digest.body in read(section, session).text
    assert "Right now: 2 files" in Prompt(name="p", sections=[section]).render(session=session).text


def test_refresh_improves_and_is_kept_until_files_change() -> None:
    """Better words stay through evaluations, and give way to the plain digest when files change."""
    fs, session, asked = files(), Session(), list[str]()

    def improve(text: str) -> str:
        asked.append(text)
        return f"Better words, {len(asked)}."

    section = WorkspaceDigestSection(session=session, source=fs, improve=improve)
    assert not asked
    assert section.refresh(session).improved
    assert "Better words, 1." in read(section, session).text
    fs.write("new.py", "x")
    assert "Better words" not in read(section, session).text
    section.refresh(session)
    assert "Better words, 2." in read(section, session).text
    assert len(asked) == 2


def test_refresh_needs_a_source() -> None:
    """A section without one can be refreshed from any filesystem, but not from nothing."""
    section, session = WorkspaceDigestSection(), Session()
    with pytest.raises(ValueError, match="source="):
        section.refresh(session)
    assert section.refresh(session, files()).files == 2


def test_two_workspaces_fit_in_one_prompt() -> None:
    """Sections with different keys keep a digest each."""
    session = Session()
    app, library = InMemoryFilesystem({"app.py": "x"}), InMemoryFilesystem({"lib.rs": "x"})
    sections = [
        WorkspaceDigestSection(source=app, key="app", title="The app"),
        WorkspaceDigestSection(source=library, key="library", title="The library"),
    ]
    both = prompt(*sections)
    both.install(session)
    assert [digest.name for digest in session[WorkspaceDigest].all()] == ["app", "library"]
    rendered = both.render(session=session)
    assert "Python" in rendered.read_section("app")
    assert "Rust" in rendered.read_section("library")


def test_it_reads_a_directory(tmp_path: Path) -> None:
    """The source may be a path of this machine."""
    (tmp_path / "main.go").write_text("package main")
    assert "- Go: 1 file" in read(WorkspaceDigestSection(source=tmp_path), Session()).text


def test_a_source_that_is_not_there_is_refused_at_once(tmp_path: Path) -> None:
    """A section of a missing directory cannot be made."""
    with pytest.raises(FileNotFoundError):
        WorkspaceDigestSection(source=tmp_path / "nope")


def test_names_of_files_are_no_placeholders() -> None:
    """A file whose name looks like a placeholder shows as it is."""
    section = WorkspaceDigestSection(source=InMemoryFilesystem({"${oops}/main.py": "$"}))
    assert "Entry points: `${oops}/main.py`." in prompt(section).render().text


def test_the_section_takes_limits_and_can_be_shown_in_full() -> None:
    """The config bounds what is said, and visibility= overrules the summary."""
    fs = InMemoryFilesystem({f"d{number}/main.py": "x" for number in range(100)})
    section = WorkspaceDigestSection(
        config=DigestConfig(max_chars=300), source=fs, visibility=SectionVisibility.FULL, accepts_overrides=True
    )
    text = prompt(section).render(session=Session()).text
    assert text.endswith("(cut here; more does not fit)")
    assert section.accepts_overrides
    with pytest.raises(PromptValidationError):
        WorkspaceDigestSection(key="Not A Key")


def test_a_failed_call_takes_its_refresh_back() -> None:
    """A tool that writes files, refreshes the digest and fails leaves neither behind."""
    session, fs = Session(), files()

    def handler(params: None, *, context: ToolContext) -> ToolResult[str]:
        assert context.filesystem is not None
        context.filesystem.write("half.py", "done")
        refresh_digest(context.session, context.filesystem)
        raise RuntimeError("no luck")

    tool = Tool[None, str](name="breaks", description="Writes, refreshes, fails.", handler=handler)
    section = WorkspaceDigestSection(session=session, source=fs)
    bound = prompt(section, MarkdownSection(title="Tools", template="", tools=[tool])).bind(resources={Filesystem: fs})
    before = session[WorkspaceDigest].latest()
    with ToolExecutor(prompt=bound, session=session) as executor:
        reply = executor.execute(ToolCall("1", "breaks", None))
        assert reply.outcome == "crashed"
        assert session[WorkspaceDigest].latest() is before
        assert before is not None
        shown = executor.execute(ToolCall("2", "read_section", {"section_key": KEY}))
        assert before.body in shown.text
