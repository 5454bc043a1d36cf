"""Overrides: other words for sections and tools, guarded by hashes, kept in files that cannot be anywhere else."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weakincentives.errors import PromptError, PromptValidationError
from weakincentives.prompt import (
    LocalPromptOverridesStore,
    MarkdownSection,
    Prompt,
    PromptDescriptor,
    PromptOverride,
    PromptOverridesStore,
    PromptTemplate,
    Section,
    SectionOverride,
    Tool,
    ToolOverride,
)
from weakincentives.session import SessionProtocol


@dataclass(frozen=True)
class Reader:
    level: str = "novice"


@dataclass(frozen=True)
class Search:
    query: str = field(metadata={"description": "What to look for"})
    limit: int = 10


SEARCH = Tool[Search, str](name="search", description="Search the index.")


def template(text: str = "Write for ${level}.", search: Tool[Any, Any] = SEARCH, **options: Any) -> PromptTemplate[Any]:
    return PromptTemplate[Any](
        ns="agents/docs",
        key="writer",
        sections=[
            MarkdownSection(
                title="Outer", children=[MarkdownSection[Reader](title="Tone", template=text, tools=[search])]
            ),
            MarkdownSection(title="Fixed", template="Never change this.", accepts_overrides=False),
        ],
        **options,
    )


@pytest.fixture
def store(tmp_path: Path) -> LocalPromptOverridesStore:
    return LocalPromptOverridesStore(tmp_path / "overrides")


def override(prompt: Prompt[Any], body: str | None = None, tool: ToolOverride | None = None) -> PromptOverride:
    descriptor = prompt.descriptor
    sections = {}
    if body is not None:
        sections = {"outer.tone": SectionOverride(descriptor.sections["outer.tone"].content_hash, body)}
    tools = {} if tool is None else {"search": replace(tool, content_hash=descriptor.tools["search"].content_hash)}
    return PromptOverride("agents/docs", "writer", "latest", sections, tools)


def file_of(tmp_path: Path) -> Path:
    return tmp_path / "overrides" / "agents" / "docs" / "writer@latest.json"


def test_a_body_is_replaced(store: LocalPromptOverridesStore) -> None:
    """The prompt made after the upsert speaks the new words, with its placeholders filled; the one before does not."""
    plain = Prompt(template(), overrides_store=store)
    store.upsert(plain.descriptor, override(plain, "Be brief, ${level}!"))
    changed = Prompt(template(), overrides_store=store)
    assert changed.render(Reader("expert")).text == (
        "## 1. Outer\n\n### 1.1 Tone\n\nBe brief, expert!\n\n## 2. Fixed\n\nNever change this."
    )
    assert "Write for novice." in plain.render().text
    assert "Be brief" in changed.bind(Reader("x")).render().text


def test_tool_words_are_replaced(store: LocalPromptOverridesStore) -> None:
    """Description and parameter descriptions; what is left out stays."""
    plain = Prompt(template())
    words = ToolOverride("", "Find documents.", {"limit": "How many at most"})
    store.upsert(plain.descriptor, override(plain, tool=words))
    (tool,) = Prompt(template(), overrides_store=store).tools()
    assert tool.description == "Find documents."
    properties = tool.schema()["properties"]
    assert properties["limit"]["description"] == "How many at most"
    assert properties["query"]["description"] == "What to look for"
    rendered = Prompt(template(), overrides_store=store).render()
    assert rendered.tool_map["search"].tool.description == "Find documents."
    assert rendered.tool_map["search"].section_path == ("outer", "tone")
    assert SEARCH.description == "Search the index."


def test_tags_are_kept_apart(store: LocalPromptOverridesStore) -> None:
    """A prompt takes the overrides of its tag, and those only."""
    plain = Prompt(template())
    store.upsert(plain.descriptor, replace(override(plain, "Stable."), tag="stable"))
    assert "Stable." in Prompt(template(), overrides_store=store, overrides_tag="stable").render().text
    assert "Write for" in Prompt(template(), overrides_store=store).render().text


def test_a_stale_override_is_ignored_with_a_warning(
    store: LocalPromptOverridesStore, caplog: pytest.LogCaptureFixture
) -> None:
    """When the code's words changed, the override was written for something else; the log says which."""
    plain = Prompt(template())
    store.upsert(plain.descriptor, override(plain, "Old edit.", ToolOverride("", "Old words.")))
    newer = template("Write better for ${level}.", SEARCH.replace(description="Search it all."))
    with caplog.at_level(logging.WARNING):
        rendered = Prompt(newer, overrides_store=store).render()
    assert "Write better for novice." in rendered.text
    assert rendered.tools[0].description == "Search it all."
    assert [record.getMessage() for record in caplog.records] == [
        f"Ignored the override of {what} in agents/docs/writer (tag latest): the prompt's own words changed since it "
        "was written. Take it out, seed again and redo the edit."
        for what in ("section 'outer.tone'", "tool 'search'")
    ]


def test_a_changed_parameter_makes_a_tool_override_stale(
    store: LocalPromptOverridesStore, caplog: pytest.LogCaptureFixture
) -> None:
    """The hash covers the whole contract, not only the description."""

    @dataclass(frozen=True)
    class Search2:
        query: str

    plain = Prompt(template())
    store.upsert(plain.descriptor, override(plain, tool=ToolOverride("", "Words.")))
    changed = template(search=Tool[Search2, str](name="search", description="Search the index."))
    assert Prompt(changed, overrides_store=store).tools()[0].description == "Search the index."
    assert "tool 'search'" in caplog.text


def test_changed_guidance_makes_a_tool_override_stale(
    store: LocalPromptOverridesStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Guidance is the author's alone, and words that fitted the old one may not fit the new one."""
    plain = Prompt(template())
    store.upsert(plain.descriptor, override(plain, tool=ToolOverride("", "Words.")))
    (old,) = plain.tools()
    assert Prompt(template(), overrides_store=store).tools()[0].description == "Words."
    changed = template(search=old.replace(guidance="Only at night."))
    assert Prompt(changed, overrides_store=store).tools()[0].description == "Search the index."
    assert "tool 'search'" in caplog.text


def test_what_is_gone_or_closed_is_ignored_with_a_warning(
    store: LocalPromptOverridesStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Sections and tools that do not exist, or do not accept overrides."""
    seeded = store.seed(Prompt(template()))
    text = file_of(tmp_path).read_text()
    data = json.loads(text)
    data["sections"] = {"gone": data["sections"]["outer.tone"], "fixed": data["sections"]["outer.tone"]}
    data["tools"] = {"gone": data["tools"]["search"]}
    file_of(tmp_path).write_text(json.dumps(data))
    rendered = Prompt(template(), overrides_store=store).render()
    assert rendered.text == Prompt(template()).render().text
    assert [record.getMessage().split(" in ")[0] for record in caplog.records] == [
        "Ignored the override of section 'gone'",
        "Ignored the override of section 'fixed'",
        "Ignored the override of tool 'gone'",
    ]
    assert "fixed" not in seeded.sections


def test_seeding_writes_the_words_to_be_edited(
    store: LocalPromptOverridesStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing changes until the file is edited; the edit shows in the next prompt."""
    prompt = Prompt(template())
    seeded = store.seed(prompt)
    assert seeded.sections["outer.tone"].body == "Write for ${level}."
    assert seeded.tools["search"].params == {"query": "What to look for", "limit": ""}
    assert Prompt(template(), overrides_store=store).render().text == prompt.render().text
    path = file_of(tmp_path)
    path.write_text(path.read_text().replace("Write for ${level}.", "Edited for ${level}."))
    assert "Edited for novice." in Prompt(template(), overrides_store=store).render().text
    assert caplog.records == []


def test_seeding_again_keeps_the_edits(store: LocalPromptOverridesStore) -> None:
    """Edits stay in the file whether they still fit or not; those that do not are not used."""
    prompt = Prompt(template())
    store.upsert(prompt.descriptor, override(prompt, "Mine.", ToolOverride("", "My words.")))
    newer = Prompt(template(search=SEARCH.replace(description="Search it all.")))
    seeded = store.seed(newer)
    assert seeded.sections["outer.tone"].body == "Mine."
    assert "search" not in seeded.tools
    assert store.resolve(newer.descriptor, "latest") == seeded
    assert store.resolve(prompt.descriptor, "latest") == store.seed(prompt)
    assert store.seed(prompt).tools["search"].description == "My words."


def test_seeding_never_overwrites_what_was_edited_by_hand(store: LocalPromptOverridesStore, tmp_path: Path) -> None:
    """Not when the code's words changed since, and not the form of a file that is fine."""
    store.seed(Prompt(template()))
    path = file_of(tmp_path)
    path.write_text(path.read_text().replace("Write for ${level}.", "Hours of work for ${level}."))
    newer = Prompt(template("Write better for ${level}."))
    store.seed(newer)
    assert "Hours of work for ${level}." in path.read_text()
    assert "Hours of work for novice." in Prompt(template(), overrides_store=store).render().text
    assert (
        "Write better for novice."
        in Prompt(template("Write better for ${level}."), overrides_store=store).render().text
    )
    mine = json.dumps(json.loads(path.read_text()), indent=7)
    path.write_text(mine)
    store.seed(newer)
    assert path.read_text() == mine


def test_seeding_renews_what_nobody_edited(store: LocalPromptOverridesStore, tmp_path: Path) -> None:
    """A section's words that seeding wrote are replaced by the new ones, ready to be edited."""
    store.seed(Prompt(template()))
    seeded = store.seed(Prompt(template("Write better for ${level}.")))
    assert seeded.sections["outer.tone"].body == "Write better for ${level}."
    assert "Write for ${level}." not in file_of(tmp_path).read_text()


def test_an_override_that_equals_the_code_replaces_nothing(store: LocalPromptOverridesStore) -> None:
    """A section that renders its own body goes on doing so after it was seeded."""

    class Live(MarkdownSection[Any]):
        def render_body(self, params: Any, *, session: SessionProtocol | None = None) -> str:
            return super().render_body(params) + " And live."

    live = PromptTemplate[Any](ns="a", key="b", sections=[Live(title="L", template="Static.")])
    store.seed(Prompt(live))
    prompt = Prompt(live, overrides_store=store)
    assert prompt.render().text == "## 1. L\n\nStatic. And live."
    digest = prompt.descriptor.sections["l"].content_hash
    store.upsert(prompt.descriptor, PromptOverride("a", "b", sections={"l": SectionOverride(digest, "Other.")}))
    assert Prompt(live, overrides_store=store).render().text == "## 1. L\n\nOther."


def test_bad_overrides_are_not_kept(store: LocalPromptOverridesStore, tmp_path: Path) -> None:
    """Unknown placeholders and parameters, stale hashes, unknown sections: refused, and nothing is written."""
    prompt = Prompt(template())
    good = override(prompt, "x", ToolOverride("", "y"))
    bad = [
        override(prompt, "${nope}"),
        override(prompt, "${"),
        override(prompt, tool=ToolOverride("", None, {"nope": "x"})),
        override(prompt, tool=ToolOverride("", "x" * 201)),
        override(prompt, tool=ToolOverride("", "  ")),
        replace(good, sections={"outer.tone": SectionOverride("0" * 64, "x")}),
        replace(good, sections={"fixed": SectionOverride("0" * 64, "x")}),
        replace(good, tools={"search": ToolOverride("0" * 64, "x")}),
        replace(good, tools={"gone": ToolOverride("0" * 64, "x")}),
        replace(good, key="other"),
    ]
    for each in bad:
        with pytest.raises(PromptValidationError):
            store.upsert(prompt.descriptor, each)
    assert not (tmp_path / "overrides").exists()


def test_a_placeholder_in_an_edited_file_is_checked(store: LocalPromptOverridesStore, tmp_path: Path) -> None:
    """The prompt is refused when it is made, with the section and the placeholder."""
    store.seed(Prompt(template()))
    path = file_of(tmp_path)
    path.write_text(path.read_text().replace("Write for ${level}.", "For ${levle}."))
    with pytest.raises(PromptValidationError, match=r"override of section 'outer.tone', .*\$\{level\}\?") as caught:
        Prompt(template(), overrides_store=store)
    assert caught.value.placeholder == "levle"


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"ns": "agents/docs"}', '{"ns":1,"key":2}', '{"ns":"x","key":"writer"}', "\x00\xff"]
)
def test_a_damaged_file_is_named(store: LocalPromptOverridesStore, tmp_path: Path, text: str) -> None:
    """It is an error, not a silent loss of edits."""
    path = file_of(tmp_path)
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(PromptValidationError, match=r"writer@latest\.json"):
        Prompt(template(), overrides_store=store)


def test_deleting_forgets_one_tag(store: LocalPromptOverridesStore) -> None:
    """It says whether there was something."""
    prompt = Prompt(template())
    store.seed(prompt)
    store.seed(prompt, tag="other")
    assert store.delete("agents/docs", "writer")
    assert not store.delete("agents/docs", "writer")
    assert store.resolve(prompt.descriptor, "latest") is None
    assert store.resolve(prompt.descriptor, "other") is not None


def test_a_template_may_refuse_overrides(store: LocalPromptOverridesStore) -> None:
    """Then the store is not even asked."""
    prompt = Prompt(template())
    store.upsert(prompt.descriptor, override(prompt, "Other."))
    closed = Prompt(template(accepts_overrides=False), overrides_store=store)
    assert "Write for novice." in closed.render().text
    assert (closed.descriptor.sections, closed.descriptor.tools) == ({}, {})


def test_tools_may_refuse_overrides() -> None:
    """`accepts_overrides=False` on a tool keeps its words."""
    prompt = Prompt(template(search=SEARCH.replace(accepts_overrides=False)))
    assert prompt.descriptor.tools == {}


def test_bound_sections_are_overridden_too(store: LocalPromptOverridesStore) -> None:
    """The descriptor has them, and the override is looked up again when they are bound."""
    extra = MarkdownSection(title="Extra", template="Own.")
    prompt = Prompt(template(), overrides_store=store).bind(sections=[extra])
    digest = prompt.descriptor.sections["extra"].content_hash
    store.upsert(
        prompt.descriptor, PromptOverride("agents/docs", "writer", sections={"extra": SectionOverride(digest, "New.")})
    )
    assert "Own." in prompt.render().text
    assert "New." in prompt.bind(sections=[MarkdownSection(title="More")]).render().text


NAMES = [
    "..", ".", "", "/", "a/..", "../a", "a/../b", "/etc", "a//b", "a/", "\x00", "a\x00b", "a\nb", "~", "a b", ".hidden",
    "a\\b", "C:", "a@b", "x" * 101, "é", "a/./b", "-a", "a*", "$(x)", "a;b",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_names_cannot_leave_the_folder(store: LocalPromptOverridesStore, tmp_path: Path, name: str) -> None:
    """As namespace, key or tag, for every operation: refused, and nothing is written anywhere."""
    empty = PromptDescriptor("a", "b", {}, {})
    for ns, key, tag in ((name, "b", "c"), ("a", name, "c"), ("a", "b", name)):
        descriptor = replace(empty, ns=ns, key=key)
        with pytest.raises(PromptValidationError, match="not usable as a file name"):
            store.resolve(descriptor, tag)
        with pytest.raises(PromptValidationError, match="not usable as a file name"):
            store.upsert(descriptor, PromptOverride(ns, key, tag))
        with pytest.raises(PromptValidationError, match="not usable as a file name"):
            store.delete(ns, key, tag)
    assert list(tmp_path.iterdir()) == []


@given(st.text(max_size=20), st.text(max_size=20), st.text(max_size=20))
def test_any_name_stays_in_the_folder(ns: str, key: str, tag: str) -> None:
    """Whatever the names are, the file is inside the root, or they are refused."""
    root = Path("/nonexistent/root")
    try:
        path = LocalPromptOverridesStore(root)._path(ns, key, tag)
    except PromptError:
        return
    assert path.resolve().is_relative_to(root)


def test_symlinks_cannot_lead_out(store: LocalPromptOverridesStore, tmp_path: Path) -> None:
    """A link in the folder that points elsewhere is refused, for reading and writing."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "overrides").mkdir()
    (tmp_path / "overrides" / "agents").symlink_to(outside)
    prompt = Prompt(template())
    for attempt in (
        lambda: store.seed(prompt),
        lambda: store.resolve(prompt.descriptor, "latest"),
        lambda: store.delete("agents/docs", "writer"),
    ):
        with pytest.raises(PromptValidationError, match="leads out of its folder"):
            attempt()
    assert list(outside.iterdir()) == []


def test_a_failed_write_leaves_the_old_file(
    store: LocalPromptOverridesStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new text is written beside the old and put in its place at once; what failed leaves nothing behind."""
    prompt = Prompt(template())
    store.upsert(prompt.descriptor, override(prompt, "First."))
    before = file_of(tmp_path).read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        store.upsert(prompt.descriptor, override(prompt, "Second."))
    assert file_of(tmp_path).read_bytes() == before
    assert [path.name for path in file_of(tmp_path).parent.iterdir()] == ["writer@latest.json"]


def test_a_file_keeps_its_permissions(store: LocalPromptOverridesStore, tmp_path: Path) -> None:
    """Replacing it changes its content, not who may read it."""
    store.seed(Prompt(template()))
    file_of(tmp_path).chmod(0o640)
    store.seed(Prompt(template("Write better for ${level}.")))
    assert file_of(tmp_path).stat().st_mode & 0o777 == 0o640


@pytest.mark.slow  # threads that write again and again
def test_readers_never_see_half_a_file(store: LocalPromptOverridesStore) -> None:
    """While one thread writes, another always reads one of the texts."""
    prompt = Prompt(template())
    bodies = [letter * 20_000 for letter in "ab"]
    store.upsert(prompt.descriptor, override(prompt, bodies[0]))
    done = False

    def write() -> None:
        for number in range(40):
            store.upsert(prompt.descriptor, override(prompt, bodies[number % 2]))
        nonlocal done
        done = True

    writer = Thread(target=write)
    writer.start()
    reads = 0
    while not done or reads == 0:
        found = store.resolve(prompt.descriptor, "latest")
        assert found is not None
        assert found.sections["outer.tone"].body in bodies
        reads += 1
    writer.join()


@pytest.mark.slow  # interpreters
def test_hashes_are_the_same_in_every_process() -> None:
    """Otherwise every restart would make every override stale."""
    program = (
        "from weakincentives.prompt import *\n"
        "from dataclasses import dataclass\n"
        "@dataclass\n"
        "class P:\n    a: str\n    b: set[str]\n"
        "t = Tool[P, None](name='t', description='d')\n"
        "d = Prompt(name='p', sections=[MarkdownSection(title='S', template='x', tools=[t])]).descriptor\n"
        "print(d.sections['s'].content_hash, d.tools['t'].content_hash)"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", program],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(seen) == 1


class CarelessStore:
    """A store that checks nothing."""

    def __init__(self, found: PromptOverride) -> None:
        self.found = found

    def resolve(self, descriptor: PromptDescriptor, tag: str) -> PromptOverride | None:
        return self.found

    def upsert(self, descriptor: PromptDescriptor, override: PromptOverride) -> PromptOverride:
        return override

    def seed(self, prompt: Any, *, tag: str = "latest") -> PromptOverride:
        return self.found

    def delete(self, ns: str, key: str, tag: str = "latest") -> bool:
        return False


def test_any_store_will_do_and_none_is_trusted() -> None:
    """A store of the user's own works; what it lets through is checked against the hashes all the same."""
    prompt = Prompt(template())
    stale = replace(override(prompt, "New."), sections={"outer.tone": SectionOverride("0" * 64, "Stale.")})
    assert isinstance(CarelessStore(stale), PromptOverridesStore)
    assert isinstance(LocalPromptOverridesStore("x"), PromptOverridesStore)
    assert "New." in Prompt(template(), overrides_store=CarelessStore(override(prompt, "New."))).render().text
    assert "Stale." not in Prompt(template(), overrides_store=CarelessStore(stale)).render().text


def test_sections_that_render_themselves_have_nothing_to_override() -> None:
    """Only a template can be replaced."""
    prompt = Prompt(name="p", sections=[Section[Any](title="S")])
    assert prompt.descriptor.sections == {}
