from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest
from tests.policies import asked

from weakincentives.errors import PromptValidationError
from weakincentives.filesystem import Filesystem
from weakincentives.filesystem.memory import InMemoryFilesystem
from weakincentives.prompt import ReadBeforeWritePolicy, ResultPolicy, SeenFiles, ToolContext, ToolResult
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
    """A file that the model wrote and somebody else changed is no longer known."""
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
    """Read, overwritten, then put back by somebody else: it is not what the model wrote, so it must be read again."""
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
