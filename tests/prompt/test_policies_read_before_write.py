from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest
from tests.policies import asked
from typing_extensions import TypedDict

from weakincentives.errors import PromptValidationError
from weakincentives.filesystem import Filesystem
from weakincentives.filesystem.memory.filesystem import InMemoryFilesystem
from weakincentives.prompt import (
    MarkdownSection,
    PromptTemplate,
    ReadBeforeWritePolicy,
    Tool,
    ToolContext,
    ToolResult,
)
from weakincentives.prompt.policy import ResultPolicy
from weakincentives.prompt.read_before_write import SeenFiles
from weakincentives.resources import ResourceRegistry
from weakincentives.session import Session


@dataclass(frozen=True)
class File:
    path: str


OK = ToolResult.ok(None)


@pytest.fixture
def fs() -> InMemoryFilesystem:
    made = InMemoryFilesystem()
    made.write("config.json", "old")
    return made


@pytest.fixture
def context(fs: InMemoryFilesystem) -> ToolContext:
    return ToolContext(session=Session(), resources=ResourceRegistry.build({Filesystem: fs}))


policy = ReadBeforeWritePolicy()


def read(context: ToolContext, path: str = "config.json") -> None:
    policy.on_result("read_file", File(path), OK, context)


def test_an_unread_file_must_not_be_overwritten(context: ToolContext) -> None:
    """The refusal says which file, and which call comes first."""
    assert policy.check("write_file", File("config.json"), context) == (
        "Cannot write to config.json without reading it first\n"
        "Call read_file(path='config.json') first, then retry write_file."
    )
    assert policy.check("edit_file", File("config.json"), context) is not None


def test_a_file_that_was_read_may_be_written(context: ToolContext) -> None:
    """Reading it once is enough."""
    read(context)
    assert policy.check("write_file", File("config.json"), context) is None


def test_new_files_may_be_written(context: ToolContext) -> None:
    """Nothing is lost by writing what does not exist."""
    assert policy.check("write_file", File("new_file.txt"), context) is None


def test_other_tools_are_none_of_its_business(context: ToolContext) -> None:
    """Only the tools it watches are checked, whatever their params."""
    assert policy.check("deploy", object(), context) is None
    policy.on_result("deploy", object(), OK, context)


@pytest.mark.parametrize("path", ["/workspace/config.json", "/config.json", "./config.json", "config.json"])
def test_all_spellings_of_a_path_are_one_file(context: ToolContext, path: str) -> None:
    """Reading under one name allows writing under another."""
    assert policy.check("write_file", File(path), context) is not None
    read(context, path)
    assert policy.check("write_file", File("config.json"), context) is None


def test_a_file_that_changed_since_must_be_read_again(context: ToolContext, fs: InMemoryFilesystem) -> None:
    """What the model knows is not what is there any more; the size and the time may be the same."""
    read(context)
    fs.write("config.json", "new")
    assert policy.check("write_file", File("config.json"), context) == (
        "Cannot write to config.json - it has changed since it was read\n"
        "Call read_file(path='config.json') first, then retry write_file."
    )
    read(context)
    assert policy.check("write_file", File("config.json"), context) is None


def test_what_the_model_wrote_it_knows(context: ToolContext, fs: InMemoryFilesystem) -> None:
    """Writing twice in a row needs one reading."""
    read(context)
    fs.write("config.json", "mine")
    policy.on_result("write_file", File("config.json"), OK, context)
    assert policy.check("edit_file", File("config.json"), context) is None


def test_what_somebody_wrote_over_the_model_must_be_read(context: ToolContext, fs: InMemoryFilesystem) -> None:
    """A file that the model wrote and other code changed is no longer known."""
    fs.write("new.txt", "mine")
    policy.on_result("write_file", File("new.txt"), OK, context)
    fs.write("new.txt", "theirs")
    assert "it has changed since it was read" in str(policy.check("write_file", File("new.txt"), context))


def test_what_was_written_in_one_session_is_unknown_in_another(context: ToolContext, fs: InMemoryFilesystem) -> None:
    """Two models on the same files do not know what the other wrote."""
    fs.write("config.json", "mine")
    policy.on_result("write_file", File("config.json"), OK, context)
    other = ToolContext(session=Session(), resources=ResourceRegistry.build({Filesystem: fs}))
    assert policy.check("write_file", File("config.json"), context) is None
    assert "without reading it first" in str(policy.check("write_file", File("config.json"), other))


def test_a_write_that_was_undone_leaves_what_was_known(context: ToolContext, fs: InMemoryFilesystem) -> None:
    """A read file is still known after a write to it was rolled back; an unread one is still unknown."""
    fs.write("unread.txt", "secret")
    read(context)
    files, state = fs.snapshot(), context.session.snapshot()
    for path in ("config.json", "unread.txt"):
        fs.write(path, "mine")
        policy.on_result("write_file", File(path), OK, context)
    fs.restore(files)
    context.session.restore(state)
    assert policy.check("write_file", File("config.json"), context) is None
    assert policy.check("write_file", File("unread.txt"), context) is not None


def test_a_second_write_that_was_undone_leaves_the_first_known(context: ToolContext, fs: InMemoryFilesystem) -> None:
    """What the model wrote before is known again when the call after it is undone, however often that happens."""
    fs.write("new.txt", "first")
    policy.on_result("write_file", File("new.txt"), OK, context)
    before, state = fs.snapshot(), context.session.snapshot()
    for number in range(3):
        fs.write("new.txt", f"undone {number}")
        policy.on_result("write_file", File("new.txt"), OK, context)
        fs.restore(before)
        context.session.restore(state)
        assert policy.check("write_file", File("new.txt"), context) is None


def test_what_the_model_wrote_is_its_sessions_alone(context: ToolContext, fs: InMemoryFilesystem) -> None:
    """Another session, also one with the same id, and one that was reset, must read it; a fork knows it."""
    session = context.session
    resources = ResourceRegistry.build({Filesystem: fs})
    fs.write("new.txt", "mine")
    policy.on_result("write_file", File("new.txt"), OK, context)
    fork = ToolContext(session=session.fork(), resources=resources)
    twin = ToolContext(session=Session(session_id=session.session_id), resources=resources)
    assert policy.check("write_file", File("new.txt"), fork) is None
    assert policy.check("write_file", File("new.txt"), twin) is not None
    session.reset()
    assert policy.check("write_file", File("new.txt"), context) is not None


def test_a_file_that_went_back_behind_the_models_back_has_changed(context: ToolContext, fs: InMemoryFilesystem) -> None:
    """Read, overwritten, then restored by other code: it is not what the model wrote, so it must be read again."""
    original = fs.read("config.json")
    read(context)
    fs.write("config.json", "mine")
    policy.on_result("write_file", File("config.json"), OK, context)
    fs.write("config.json", original)
    refused = policy.check("write_file", File("config.json"), context)
    assert refused is not None
    assert "it has changed since it was read" in refused
    read(context)
    assert policy.check("write_file", File("config.json"), context) is None


def test_a_failed_reading_teaches_nothing(context: ToolContext) -> None:
    """Neither an error nor a file that is not there is noted."""
    policy.on_result("read_file", File("config.json"), ToolResult.error("no"), context)
    policy.on_result("read_file", File("missing.txt"), OK, context)
    assert context.session[SeenFiles].latest() is None


def test_what_was_seen_is_undone_with_the_call(context: ToolContext) -> None:
    """It is a STATE slice: after a rollback the file counts as unread."""
    before = context.session.snapshot()
    read(context)
    context.session.restore(before)
    assert policy.check("write_file", File("config.json"), context) is not None


def test_what_was_seen_is_saved_with_the_session(context: ToolContext, fs: InMemoryFilesystem) -> None:
    """A loaded session still knows it."""
    read(context)
    session = context.session
    loaded = Session.from_json(session.to_json(), types=[SeenFiles])
    assert SeenFiles.of(loaded).knows("/workspace/config.json", fs)
    assert not SeenFiles.of(loaded).knows("other", fs)


def test_without_a_filesystem_only_what_was_read_may_be_written() -> None:
    """Nothing tells new files from old, so the policy stays on the safe side."""
    bare = ToolContext()
    assert policy.check("write_file", File("a"), bare) is not None
    read(bare, "a")
    assert policy.check("write_file", File("a"), bare) is None


def test_a_path_that_the_filesystem_refuses_is_left_to_it(context: ToolContext) -> None:
    """Its own error says what is wrong with the path."""
    assert policy.check("write_file", File("../etc/passwd"), context) is None


def test_tools_and_field_can_be_named(context: ToolContext) -> None:
    """Suites with other names use the same policy; params may be mappings."""
    own = ReadBeforeWritePolicy(reads=("cat",), writes=("put",), path_field="file")
    assert "Call cat(file='config.json') first, then retry put." in str(
        own.check("put", {"file": "config.json"}, context)
    )
    own.on_result("cat", {"file": "config.json"}, OK, context)
    assert own.check("put", {"file": "config.json"}, context) is None
    assert own.check("write_file", File("config.json"), context) is None
    blind = ReadBeforeWritePolicy(reads=(), writes=("put",), path_field="path")
    context.session[SeenFiles].clear()
    assert "can only make new files" in str(blind.check("put", File("config.json"), context))


def test_params_without_the_path_refuse(context: ToolContext) -> None:
    """A policy that cannot find the path closes the gate, and says in the log how to name the field."""
    with pytest.raises(TypeError, match="path_field"):
        policy.check("write_file", object(), context)
    assert asked((policy,), "write_file", object(), context) is not None


def test_bare_strings_are_refused() -> None:
    """One name is not several."""
    with pytest.raises(PromptValidationError):
        ReadBeforeWritePolicy(reads=cast(Any, "read_file"))


def test_it_follows_the_protocol() -> None:
    """It is a policy that listens to results."""
    assert isinstance(policy, ResultPolicy)
    assert "read_file" in repr(policy)


@dataclass(frozen=True)
class Transfer:
    src: str
    dst: str


def test_a_copy_or_move_of_what_is_known_is_known(context: ToolContext, fs: InMemoryFilesystem) -> None:
    """What was read or written before may be written in its new place; what was not must be read there."""
    read(context)
    fs.write("mine.txt", "mine")
    policy.on_result("write_file", File("mine.txt"), OK, context)
    fs.write("unread.txt", "secret")
    for source, target in (("config.json", "copy.json"), ("mine.txt", "copy.txt"), ("unread.txt", "other.txt")):
        fs.copy(source, target)
        policy.on_result("copy_file", Transfer(source, target), OK, context)
        fs.move(target, f"moved/{target}")
        policy.on_result("move_file", Transfer(target, f"moved/{target}"), OK, context)
    assert policy.check("write_file", File("moved/copy.json"), context) is None
    assert policy.check("write_file", File("moved/copy.txt"), context) is None
    assert "without reading it first" in str(policy.check("write_file", File("moved/other.txt"), context))


def test_a_copy_of_a_tree_is_known_where_the_tree_was(context: ToolContext, fs: InMemoryFilesystem) -> None:
    """Each file of it for itself."""
    fs.write("d/read.txt", "a")
    fs.write("d/deep/mine.txt", "b")
    fs.write("d/unread.txt", "c")
    read(context, "d/read.txt")
    policy.on_result("write_file", File("d/deep/mine.txt"), OK, context)
    fs.copy("d", "e")
    policy.on_result("copy_file", Transfer("d", "e"), OK, context)
    assert policy.check("write_file", File("e/read.txt"), context) is None
    assert policy.check("write_file", File("e/deep/mine.txt"), context) is None
    assert policy.check("write_file", File("e/unread.txt"), context) is not None


def test_a_copy_of_what_changed_since_it_was_read_is_not_known(context: ToolContext, fs: InMemoryFilesystem) -> None:
    """The copy holds what the model has not seen."""
    read(context)
    fs.write("config.json", "theirs")
    fs.copy("config.json", "copy.json")
    policy.on_result("copy_file", Transfer("config.json", "copy.json"), OK, context)
    assert "it has changed since it was read" in str(policy.check("write_file", File("copy.json"), context))


def test_a_copy_replaces_what_was_known_of_its_place(context: ToolContext, fs: InMemoryFilesystem) -> None:
    """A file was written, deleted, and another one that was read is copied there."""
    read(context)
    fs.write("place.txt", "mine")
    policy.on_result("write_file", File("place.txt"), OK, context)
    fs.delete("place.txt")
    fs.copy("config.json", "place.txt")
    policy.on_result("copy_file", Transfer("config.json", "place.txt"), OK, context)
    assert policy.check("write_file", File("place.txt"), context) is None


def test_without_files_a_copy_of_what_was_read_is_known() -> None:
    """There is nothing to compare with, as for all that is read."""
    context = ToolContext(session=Session())
    read(context)
    policy.on_result("copy_file", Transfer("config.json", "copy.json"), OK, context)
    assert policy.check("write_file", File("copy.json"), context) is None
    policy.on_result("copy_file", File("copy.json"), OK, context)  # other fields: nothing is noted
    assert policy.check("write_file", File("third.json"), context) is not None


def test_a_directory_is_called_one(context: ToolContext, fs: InMemoryFilesystem) -> None:
    """Reading it first would not help."""
    fs.mkdir("d")
    assert policy.check("write_file", File("d"), context) == (
        "Cannot write to d - it is a directory, not a file\nGive the path of a file in it."
    )


@dataclass(frozen=True)
class Named:
    filename: str


class Typed(TypedDict):
    path: str


def _template(*tools: Tool[Any, Any], path_field: str = "path") -> PromptTemplate[str]:
    section = MarkdownSection(title="Files", template="Files.", tools=tools)
    return PromptTemplate(ns="t", key="t", sections=[section], policies=[ReadBeforeWritePolicy(path_field=path_field)])


@pytest.mark.parametrize("name", ["read_file", "write_file", "edit_file"])
def test_params_without_the_path_field_are_refused_when_the_prompt_is_built(name: str) -> None:
    """Not at each call: the error names the tool, its params and the setting."""
    tool = Tool[Named, str](name=name, description="x", handler=lambda params: ToolResult.ok("x"))
    with pytest.raises(
        PromptValidationError, match=rf"watches '{name}', .* Named, without a field 'path'.*path_field="
    ):
        _template(tool)
    assert _template(tool, path_field="filename").tree.tools
    none = Tool[None, str](name=name, description="x", handler=lambda params: ToolResult.ok("x"))
    with pytest.raises(PromptValidationError, match="no params"):
        _template(none)


def test_other_tools_and_other_kinds_of_params_are_fine() -> None:
    """Only the tools it watches need the field; it may be a property, or a key."""

    @dataclass(frozen=True)
    class Derived:
        name: str

        @property
        def path(self) -> str:
            return self.name

    tools = [
        Tool[Named, str](name="deploy", description="x"),
        Tool[Typed, str](name="read_file", description="x"),
        Tool[Derived, str](name="write_file", description="x"),
        Tool[Named, str](name="copy_file", description="x"),
    ]
    assert len(_template(*tools).tree.tools) == 4


def test_a_policy_of_a_section_above_is_asked_about_the_tools_below() -> None:
    """Wherever it is declared."""
    tool = Tool[Named, str](name="write_file", description="x")
    inner = MarkdownSection(title="Inner", template="x", tools=[tool])
    outer = MarkdownSection(title="Outer", template="x", children=[inner], policies=[ReadBeforeWritePolicy()])
    with pytest.raises(PromptValidationError, match="write_file"):
        PromptTemplate(ns="t", key="t", sections=[outer])
