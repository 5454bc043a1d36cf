"""`watch="scan"` and tools that say that they start no programs: their calls need no walk through the tree."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.filesystem.crash import Faulty, abandon, build, everything, open_host
from tests.filesystem.test_host_scan import SEED, folder, looks, root
from tests.filesystem.test_host_scan_large import Counting, Nothing, executor_of

from weakincentives.errors import PromptValidationError, SnapshotError
from weakincentives.fence import Owner
from weakincentives.filesystem import Filesystem, HostFilesystem
from weakincentives.prompt import MarkdownSection, Prompt, Tool, ToolAnnotations, ToolContext, ToolResult
from weakincentives.runtime import Session, ToolCall, transaction
from weakincentives.runtime.executor import ToolExecutor

__all__ = ["folder", "root"]

Handler = Callable[[Nothing, ToolContext], ToolResult[None]]
NO_PROGRAMS = ToolAnnotations(starts_programs=False)


def run(fs: HostFilesystem, handler: Handler, annotations: ToolAnnotations = NO_PROGRAMS, call: str = "1") -> str:
    """The outcome of one call."""
    return executor_of(fs, handler, annotations=annotations).execute(ToolCall(call, "work", "{}")).outcome


def nothing(_: Nothing, context: ToolContext) -> ToolResult[None]:
    """Touches no file."""
    del context
    return ToolResult.ok(None)


def files_of(context: ToolContext) -> Filesystem:
    """The files of the call."""
    assert context.filesystem is not None
    return context.filesystem


@pytest.mark.parametrize(
    ("annotations", "walks"),
    [(NO_PROGRAMS, 0), (ToolAnnotations(read_only=True), 0), (ToolAnnotations(), 2)],
    ids=["no programs", "read-only", "anything"],
)
@pytest.mark.parametrize("succeeds", [True, False])
def test_only_a_call_that_may_start_programs_walks(
    root: Path, annotations: ToolAnnotations, walks: int, succeeds: bool
) -> None:
    """The others do not look at the tree, whether they succeed or fail."""
    calls = Counting()
    inode = root.stat().st_ino

    def handler(_: Nothing, context: ToolContext) -> ToolResult[None]:
        del context
        return ToolResult.ok(None) if succeeds else ToolResult.error("no")

    with HostFilesystem(root, watch="scan", syscalls=calls) as fs:
        fs.release(fs.snapshot())
        for number in range(3):
            calls.listed.clear()
            assert run(fs, handler, annotations, str(number)) == ("succeeded" if succeeds else "failed")
            assert calls.listed[inode] == walks
            assert len(calls.listed) == 0 or walks


def test_a_read_only_call_whose_policies_may_write_is_undone(root: Path) -> None:
    """What a policy writes when a read-only tool has succeeded is undone with the call, without a walk."""
    before = looks(root)

    class Spoils:
        """Writes, then fails."""

        def check(self, tool_name: str, params: object, context: ToolContext) -> None:
            del tool_name, params, context

        def on_result(self, tool_name: str, params: object, result: object, context: ToolContext) -> None:
            del tool_name, params, result
            files_of(context).write("a.txt", "by the policy")
            raise RuntimeError("no")

    tool = Tool[Nothing, None](
        name="work", description="Work.", handler=nothing, annotations=ToolAnnotations(read_only=True)
    )
    section = MarkdownSection(title="Work", template="", tools=[tool], policies=[Spoils()])
    with HostFilesystem(root, watch="scan") as fs:
        prompt = Prompt(name="files", sections=[section]).bind(resources={Filesystem: fs})
        reply = ToolExecutor(prompt=prompt, session=Session()).execute(ToolCall("1", "work", "{}"))
        assert reply.outcome == "crashed"
        assert looks(root) == before


def test_a_failed_call_without_programs_undoes_its_own_writes_alone(root: Path) -> None:
    """As without `watch`: even the inode is the same, and what another program wrote meanwhile stays."""
    inode = (root / "a.txt").stat().st_ino
    before = looks(root)

    def handler(_: Nothing, context: ToolContext) -> ToolResult[None]:
        fs = files_of(context)
        fs.write("a.txt", "by the call")
        fs.write("new/deep.txt", "new")
        fs.delete("d", recursive=True)
        fs.move("t", "moved")
        (root / "others.txt").write_text("by an editor")
        return ToolResult.error("no")

    with HostFilesystem(root, watch="scan") as fs:
        reply = executor_of(fs, handler, annotations=NO_PROGRAMS).execute(ToolCall("1", "work", "{}"))
        assert reply.outcome == "failed"
        assert "Rolled back" in reply.text
        assert (root / "others.txt").read_text() == "by an editor"
        assert (root / "a.txt").stat().st_ino == inode
        (root / "others.txt").unlink()
        assert {path: seen for path, seen in looks(root).items() if path != "."} == {
            path: seen for path, seen in before.items() if path != "."
        }


def test_what_others_changed_between_two_calls_stays(root: Path) -> None:
    """A failing call that starts programs goes back to the moment it began, also where it changed the same file."""

    def program(_: Nothing, context: ToolContext) -> ToolResult[None]:
        del context
        with (root / "a.txt").open("r+") as file:
            file.write("BY THE PROGRAM")
        return ToolResult.error("no")

    with HostFilesystem(root, watch="scan") as fs:
        for number in range(3):
            assert run(fs, nothing, ToolAnnotations(), f"a{number}") == "succeeded"
            (root / "a.txt").write_text(f"by the user {number}")
            (root / f"made{number}").write_text("by the user")
            (root / f"made{number - 1}").unlink(missing_ok=True)
            assert run(fs, program, ToolAnnotations(), f"b{number}") == "failed"
            assert (root / "a.txt").read_text() == f"by the user {number}"
            assert (root / f"made{number}").exists()
            assert not (root / f"made{number - 1}").exists()


def test_a_walk_finds_what_calls_without_programs_wrote(root: Path) -> None:
    """The copy follows them: a later call that fails restores what they kept."""

    def write(_: Nothing, context: ToolContext) -> ToolResult[None]:
        files_of(context).write("a.txt", "kept")
        return ToolResult.ok(None)

    def program(_: Nothing, context: ToolContext) -> ToolResult[None]:
        del context
        (root / "a.txt").unlink()
        return ToolResult.error("no")

    with HostFilesystem(root, watch="scan") as fs:
        assert run(fs, nothing, ToolAnnotations()) == "succeeded"
        assert run(fs, write) == "succeeded"
        assert run(fs, program, ToolAnnotations()) == "failed"
        assert (root / "a.txt").read_text() == "kept"


def nested(fs: HostFilesystem, outer: ToolAnnotations, inner: Handler, declared: ToolAnnotations) -> list[Any]:
    """The replies of a call that fails after it called another tool: first the inner one."""
    replies: list[Any] = []
    session = Session()
    executors: list[ToolExecutor] = []

    def handler(_: Nothing, context: ToolContext) -> ToolResult[None]:
        files_of(context).write("outer.txt", "by the outer call")
        replies.append(executors[0].execute(ToolCall("inner", "inner", "{}")))
        return ToolResult.error("no")

    tools = [
        Tool[Nothing, None](name="outer", description="Call.", handler=handler, annotations=outer),
        Tool[Nothing, None](name="inner", description="Work.", handler=inner, annotations=declared),
    ]
    section = MarkdownSection(title="Work", template="", tools=tools)
    prompt = Prompt(name="files", sections=[section]).bind(resources={Filesystem: fs})
    executors.append(ToolExecutor(prompt=prompt, session=session))
    replies.append(executors[0].execute(ToolCall("outer", "outer", "{}")))
    return replies


def test_a_call_without_programs_inside_one_with_programs(root: Path) -> None:
    """The inner one needs no walk; when the outer one fails, everything is undone."""
    before = looks(root)

    def inner(_: Nothing, context: ToolContext) -> ToolResult[None]:
        files_of(context).write("a.txt", "by the inner call")
        (root / "run.sh").write_text("by a program of the outer call")
        return ToolResult.ok(None)

    with HostFilesystem(root, watch="scan") as fs:
        replies = nested(fs, ToolAnnotations(), inner, NO_PROGRAMS)
        assert [reply.outcome for reply in replies] == ["succeeded", "failed"]
        assert looks(root) == before


def test_a_call_with_programs_inside_one_without_is_refused(root: Path) -> None:
    """Undoing the outer one would not undo what programs did, so the inner one does not begin."""
    before = looks(root)

    def inner(_: Nothing, context: ToolContext) -> ToolResult[None]:
        raise NotImplementedError

    with HostFilesystem(root, watch="scan") as fs:
        replies = nested(fs, NO_PROGRAMS, inner, ToolAnnotations())
        assert [reply.outcome for reply in replies] == ["refused", "failed"]
        assert "starts_programs=False" in replies[0].text
        assert looks(root) == before


def test_a_transaction_inside_a_call_without_programs_walks_not_either(root: Path) -> None:
    """A block belongs to the call that it stands in."""
    calls = Counting()

    def handler(_: Nothing, context: ToolContext) -> ToolResult[None]:
        calls.listed.clear()
        fs = files_of(context)
        fs.write("a.txt", "by the call")
        with suppress(RuntimeError), transaction(context.session, context.resources):
            fs.write("a.txt", "in the block")
            fs.write("b.txt", "in the block")
            raise RuntimeError
        assert fs.read("a.txt") == "by the call"
        assert not fs.exists("b.txt")
        assert not calls.listed[root.stat().st_ino]
        return ToolResult.ok(None)

    with HostFilesystem(root, watch="scan", syscalls=calls) as fs:
        assert run(fs, handler) == "succeeded"
        assert fs.read("a.txt") == "by the call"


def test_snapshots_by_hand_beside_a_call_without_programs(root: Path) -> None:
    """One from before the call cannot be restored in it; one from inside can, and the call is undone all the same."""
    before = looks(root)
    with HostFilesystem(root, watch="scan") as fs:
        older = fs.snapshot()

        def handler(_: Nothing, context: ToolContext) -> ToolResult[None]:
            files = files_of(context)
            files.write("a.txt", "1")
            files.move("d", "moved")
            inside = files.snapshot()
            files.write("a.txt", "2")
            files.write("moved/one.txt", "2")
            files.delete("run.sh")
            with pytest.raises(SnapshotError, match="older than a call"):
                fs.restore(older)
            files.restore(inside)
            assert files.read("a.txt") == "1"
            assert files.exists("run.sh")
            return ToolResult.error("no")

        assert run(fs, handler) == "failed"
        assert looks(root) == before
        fs.write("a.txt", "changed")
        fs.restore(older)
        assert looks(root) == before


def declared_owner() -> Owner:
    """Of a call of a tool that starts no programs."""
    owner = Owner()
    owner.only_through_api = True
    return owner


def crash_points(folder: Path, step: int, error: int | None = None) -> int:
    """Crash (or fail) at calls of such a transaction after one that was watched, then of the recovery, too."""
    at, number = random.Random(SEED).randrange(step) + 1, 0
    while True:
        number += 1
        root = folder / f"crash{number}"
        build(root)
        before = looks(root)
        syscalls = Faulty(at, error=error)
        fs = after = None
        try:
            fs = open_host(root, syscalls, watch="scan")
            fs.release(fs.savepoint())
            outer = fs.savepoint() if number % 2 else None
            # A hand-made owner belongs to no context, so writes outside of calls are counted as its own.
            savepoint = fs.savepoint(declared_owner(), for_all=True)
            for change in everything(fs)[:6]:
                change()
            after = looks(root)
            fs.release(savepoint)
            if outer is not None:
                fs.release(outer)
        except BaseException as failure:
            if not syscalls.dead and not isinstance(failure, OSError):
                raise
        if fs is not None:
            abandon(fs, syscalls)
        done = syscalls.count < at
        for again in (at % 97 + 1, None):
            second = Faulty(again)
            try:
                open_host(root, second, watch="scan").close()
            except BaseException:
                if not second.dead:
                    raise
            second.reap()
        assert looks(root) in (before, after), f"seed {SEED}, call {at}"
        if done:
            return number
        at += step


def test_a_crash_in_a_call_without_programs_is_rolled_back(folder: Path) -> None:
    """Wherever the process stops, alone or inside of a watched transaction, and again in recovery."""
    assert crash_points(folder, 11) >= 9


@pytest.mark.torture
@pytest.mark.parametrize("error", [None, errno.EIO])
def test_a_crash_or_error_at_every_call(folder: Path, error: int | None) -> None:
    """Every call of such a transaction."""
    assert crash_points(folder, 1, error) > 100


def test_the_declaration_is_a_truth_value_and_not_a_hint_of_mcp() -> None:
    """Anything else is refused where it is made."""
    with pytest.raises(PromptValidationError, match="starts_programs must be True or False"):
        ToolAnnotations(starts_programs=1)  # pyright: ignore[reportArgumentType]
    assert "starts" not in " ".join(NO_PROGRAMS.hints())
