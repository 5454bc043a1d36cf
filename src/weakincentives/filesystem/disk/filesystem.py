"""Files in a real directory, confined to it, with writes that are atomic and can be undone."""

from __future__ import annotations

import atexit
import errno
import logging
import os
import stat
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, Self

from ...errors import ReadOnlyError
from ...fence import Owner, current_owner
from ...interrupts import WeakTable, finalizer, shielded
from ..paths import ROOT, file_exists, into_itself, is_a_directory, is_below, not_empty, root_refused, split
from ..protocol import FileChanges, FileKind, FileNode, Filesystem, LargeFile, encode
from ..search.walk import FilesystemTree, WalkTree
from ..views import ReadOnlyFilesystem, SubFilesystem
from .confine import Handle, refused
from .copies import MAX_COPIED_BYTES
from .disk_root import DiskRoot
from .mirror_scope import MirrorScope
from .reading import HostReading
from .reversal import large_in, node_in
from .staging import Staging
from .syscalls import DIRECTORY, Syscalls, look
from .undo_scope import HostSnapshot, UndoScope, WriteOperation

_log = logging.getLogger(__name__)


class HostFilesystem(HostReading):
    """A `Filesystem` on a directory of this machine.

    Opening it undoes a transaction that a killed process left there (a warning says so). Whatever is written while a
    snapshot is alive can be undone; while a `savepoint` is, also after `kill -9`, and with `durable=True` also after a
    power cut. Snapshots nest: restoring one ends those taken after it. `close()` (or leaving a `with` block) releases
    the snapshots that are left, so what was written stays, and removes what was kept for an undo.

    Only one writer at a time: while a transaction has written something, any other process or object that
    writes to the same root waits a second, then gets a `JournalError` that names the process.

    Raises `FileNotFoundError` or `NotADirectoryError` when the root is not a directory, `ValueError` when it is undo
    state itself (the private directory, a vault, or something in them), and `JournalError` when another process has a
    transaction open on it. A root that is a symlink is resolved once, here.

    Args:
        root: the directory.
        read_only: refuse every write with `ReadOnlyError`; nothing is ever made on the disk.
        watch: "scan" undoes what other programs changed as well; see `docs/filesystem-disk.md` for its cost.
        durable: wait for the disk at each step.
        owner: the user and group to whom new files and directories are given, which takes root's rights; a container
            that works in the root as another user can change them then.
        state_dir: a private directory for the undo journal, outside of the root; `$XDG_STATE_HOME/wink` or
            `~/.local/state/wink` if it is not given. Where there is none that other users cannot change, a warning
            says so, and nothing can be undone after a crash.
        max_copied_bytes: with `watch="scan"`, the most data a file may have of which a copy is kept, None for any. A
            call that changed a larger one cannot be undone completely: it ends with an error that names the file.
        syscalls: the operating system, for tests.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as root, HostFilesystem(root) as fs:
    ...     fs.write("notes/today.txt", "buy milk")
    ...     before = fs.snapshot()
    ...     fs.delete("notes", recursive=True)
    ...     fs.restore(before)
    ...     fs.read("notes/today.txt")
    'buy milk'
    """

    __slots__ = (
        "__weakref__",
        "_scope",
        "_staging",
    )

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        read_only: bool = False,
        watch: Literal["scan"] | None = None,
        durable: bool = False,
        owner: tuple[int, int] | None = None,
        state_dir: str | os.PathLike[str] | None = None,
        max_copied_bytes: int | None = MAX_COPIED_BYTES,
        syscalls: Syscalls | None = None,
    ) -> None:
        if watch not in {None, "scan"}:
            raise ValueError(f'watch must be None or "scan", got {watch!r}.')
        if watch and read_only:
            raise ValueError('watch="scan" keeps a copy on the disk, so it cannot be read_only; leave one out.')
        if max_copied_bytes is not None and max_copied_bytes < 0:
            raise ValueError(f"max_copied_bytes must be 0 or more, or None for no limit, got {max_copied_bytes!r}.")
        self._read_only = read_only
        self._disk = DiskRoot(syscalls or Syscalls(), os.fspath(root), durable=durable, state_dir=state_dir)
        self._scope = MirrorScope(self._disk, max_copied_bytes) if watch else UndoScope(self._disk)
        self._staging = Staging(self._disk, owner)
        try:
            if read_only:
                self._warn_if_left_open()
            else:
                self._disk.inspect()
        except BaseException:
            self._disk.close()
            raise
        self._disk.closed = False
        _opened.put(self, None)

    def __repr__(self) -> str:
        return f"HostFilesystem({self._disk.root!r}{', read_only=True' if self._read_only else ''})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    @finalizer
    def __del__(self) -> None:
        # Also runs when __init__ raised; what fails here is done when the root is next opened.
        with suppress(Exception):
            self.close()

    @property
    def root(self) -> Path:
        """The directory, resolved."""
        return Path(self._disk.root)

    @property
    def watches(self) -> bool:
        """Whether what other programs change is undone as well (`watch="scan"`)."""
        return isinstance(self._scope, MirrorScope)

    @property
    def hides_state(self) -> bool:
        """Whether the vault is, or would be, inside the root, where programs that work there reach it."""
        return self._disk.hides

    def close(self) -> None:
        """Release all snapshots, keep what was written, give back locks and descriptors. Calling it twice is fine.

        Reading and writing raise `ValueError` afterwards.
        """
        self._disk.closed = True
        self._scope.close()

    def _warn_if_left_open(self) -> None:
        if self._disk.left_open():
            _log.warning(
                "%s has a transaction that is open or was left by a killed process; "
                "open it without read_only to have it rolled back",
                self._disk.root,
            )

    # --- writing: whatever can fail comes first, then one step that changes the root. In a run, Ctrl-C waits for it.

    def write(self, path: str, content: str | bytes) -> None:
        """See `Filesystem.write`. Mode, owner and extended attributes of a file that is there are kept."""
        self._put_file(path, content, append=False)

    def append(self, path: str, content: str | bytes) -> None:
        """See `Filesystem.append`; the file is copied, so that the change is one step like all others."""
        self._put_file(path, content, append=True)

    def delete(self, path: str, *, recursive: bool = False) -> None:
        """See `Filesystem.delete`. A symlink, FIFO or socket is removed itself."""
        path = self._disk.canonical(path)
        if path == ROOT:
            raise root_refused("deleted")
        with shielded(), self._scope.lock, self._writing(path):
            parent, name = self._disk.dirs.parent(path)
            with parent as at:
                old = self._disk.sys.stat(name, dir_fd=at)
                if not recursive and stat.S_ISDIR(old.st_mode) and self._filled(name, at):
                    raise not_empty(path)
                self._scope.mutations.remove(path, at, name, old)

    def mkdir(self, path: str) -> None:
        """See `Filesystem.mkdir`."""
        path = self._disk.canonical(path)
        with shielded(), self._scope.lock, self._writing(path):
            if path != ROOT:
                self._mkdir(path)

    def copy(self, source: str, target: str) -> None:
        """See `Filesystem.copy`. Modes and times are kept, but the owner may write; symlinks stay symlinks."""
        source, target = self._disk.canonical(source), self._disk.canonical(target)
        with (
            shielded(),
            self._scope.lock,
            self._writing(target, source) as writing,
            self._transfer(writing, source, target) as (at, name, to, target_name, rest),
        ):
            writing.about = source
            staged = self._staging.copy(source, at, name)
            writing.about = target
            self._place(target, to, target_name, rest, staged=staged)

    def move(self, source: str, target: str) -> None:
        """See `Filesystem.move`; a symlink is moved itself."""
        source, target = self._disk.canonical(source), self._disk.canonical(target)
        if source == ROOT:
            raise root_refused("moved")
        with (
            shielded(),
            self._scope.lock,
            self._writing(target, source) as writing,
            self._transfer(writing, source, target) as (at, _, _, _, rest),
        ):
            if rest:
                writing.begin()  # two steps from here on: a crash between them must be undone
                self._mkdir(split(target)[0])
            with self._disk.dirs.directory(split(target)[0]) as to:
                self._scope.mutations.move(source, at, target, to)

    def _tree(self) -> WalkTree:
        return _HostTree(self)

    def _writing(self, path: str, *others: str) -> WriteOperation:
        if self._read_only:
            raise ReadOnlyError(f"{self!r} is read-only, so {path!a} was not changed.")
        return WriteOperation(self._scope, (path, *others))

    def _put_file(self, path: str, content: str | bytes, *, append: bool) -> None:
        data = encode(content)
        path = self._disk.canonical(path)
        with shielded(), self._scope.lock, self._writing(path):
            if path == ROOT:
                raise is_a_directory(path)
            parent, name, rest = self._disk.dirs.anchor(path)
            with parent as at:
                old = None if rest else self._replaceable(path, at, name)
                if append and old is not None:
                    with self._open_file(path) as before:
                        staged = self._staging.file(data, at=at, name=name, old=old, after=before)
                else:
                    staged = self._staging.file(data, at=at, name=name, old=old)
                self._place(path, at, name, rest, staged=staged, old=old)

    def _place(
        self,
        path: str,
        at: int,
        name: str,
        rest: Sequence[str],
        *,
        staged: str | None,
        old: os.stat_result | None = None,
    ) -> None:
        """Move it into place, making missing directories; whatever could not be moved is deleted."""
        if rest or staged is None:
            staged = self._staging.wrapped(staged, rest, at=at)
            path = path[: len(path) - sum(len(part) + 1 for part in rest)]
        self._scope.mutations.put(path, at, name, staged, old)

    def _mkdir(self, path: str) -> None:
        parent, name, rest = self._disk.dirs.anchor(path)
        with parent as at:
            if not rest and (found := look(self._disk.sys, name, at)) is not None:
                if stat.S_ISLNK(found.st_mode):
                    raise refused(path, "is a symlink")
                if not stat.S_ISDIR(found.st_mode):
                    raise file_exists(path)
                return
            self._place(path, at, name, rest, staged=None)

    @contextmanager
    def _transfer(
        self, writing: WriteOperation, source: str, target: str
    ) -> Generator[tuple[int, str, int, str, Sequence[str]], None, None]:
        """Check that the source may go to the target; the directory and name of both, and what is missing below.

        Errors in here name the path that they are about; from then on they name the target.
        """
        writing.about = source
        parent, name = self._disk.dirs.parent(source)
        with parent as at:
            found = self._disk.sys.stat(name, dir_fd=at)
            writing.about = target
            if target == ROOT:
                raise file_exists(target)
            anchor, target_name, rest = self._disk.dirs.anchor(target)
            with anchor as to:
                if not rest and look(self._disk.sys, target_name, to) is not None:
                    raise file_exists(target)
                if stat.S_ISDIR(found.st_mode) and is_below(target, source):
                    raise into_itself(source, target)
                yield at, name, to, target_name, rest

    def _replaceable(self, path: str, at: int, name: str) -> os.stat_result | None:
        old = look(self._disk.sys, name, at)
        if old is None:
            return None
        if stat.S_ISDIR(old.st_mode):
            raise is_a_directory(path)
        if not stat.S_ISREG(old.st_mode):
            raise refused(path, "is a symlink, socket, FIFO or device")
        if not self._may_replace(old, name, at):
            raise PermissionError(errno.EACCES, "The file is write-protected; change its mode first", path)
        return old

    def _filled(self, name: str, at: int) -> bool:
        with Handle(self._disk.sys, self._disk.sys.open(name, DIRECTORY, dir_fd=at)) as fd:
            return bool(self._disk.sys.names(fd))

    # --- snapshots

    def snapshot(self) -> HostSnapshot:
        """See `Filesystem.snapshot`; nothing on the disk is touched before the first write.

        It ends with the process: after a crash what was written since stays. Use `savepoint` where that must not be.
        """
        return self._scope.snapshot()

    def savepoint(self, owner: Owner | None = None, *, for_all: bool = False) -> HostSnapshot:
        """A snapshot that a crash is rolled back to as well: until it is released, nothing written since is final.

        Restoring it undoes what its owner wrote and nothing else; while it lives, a write of others that overlaps with
        that raises `ConflictError`. With `watch="scan"` it undoes what any program did.

        Args:
            owner: whose writes are its own, those of savepoints nested in it included; None stands for the call around
                this code, and outside of calls for all writes.
            for_all: whether writes outside of any call are its own, too.
        """
        return self._scope.savepoint(owner or current_owner(), for_all=for_all)

    def restore(self, snapshot: Any, /) -> None:
        """See `Filesystem.restore`. Ends all snapshots that were taken after this one.

        Raises `SnapshotError` for one that is over, and for a bare one that is older than an open savepoint. A
        `JournalError` means that the disk refused: restoring may be tried again and goes on where it stopped; until
        that is done every write and snapshot tries to finish it first, and is refused when it cannot.
        """
        self._scope.restore(snapshot)

    def release(self, snapshot: Any, /) -> None:
        """See `Filesystem.release`; of the outermost savepoint, it is the commit."""
        self._scope.release(snapshot)

    def changes(self, since: Any, /) -> FileChanges:
        """See `Filesystem.changes`; a file written with the bytes it had is not changed."""
        return self._scope.changes(since)

    def changes_before_restore(self, since: Any, /) -> FileChanges:
        """See `SavepointFilesystem.changes_before_restore`; with `watch="scan"` it saves a walk through the tree."""
        return self._scope.changes_before_restore(since)

    # --- records

    def node(self, path: str) -> FileNode | None:
        """See `RecordableFilesystem.node`."""
        return node_in(self._disk.sys, self._disk.dirs, self._disk.canonical(path))

    def node_at(self, snapshot: Any, path: str, /) -> FileNode | None:
        """See `RecordableFilesystem.node_at`."""
        return self._scope.node_at(snapshot, self._disk.canonical(path))

    def large_file(self, path: str, snapshot: Any = None, /) -> LargeFile | None:
        """See `LargeFilesystem`."""
        path = self._disk.canonical(path)
        if snapshot is None:
            return large_in(self._disk.sys, self._disk.dirs, path)
        return self._scope.large_at(snapshot, path)

    def put_node(self, path: str, node: FileNode | None) -> None:
        """See `RecordableFilesystem.put_node`. It is not one step: a crash may leave only a part of it done."""
        there = self.node(path)
        if there is not None and (node is None or there.kind != node.kind or node.kind == "symlink"):
            self.delete(path, recursive=True)
        if node is None:
            return
        if node.kind == "directory":
            self.mkdir(path)
        elif node.kind == "file":
            self.write(path, node.content)
        elif node.kind == "symlink":
            self._put_symlink(path, os.fsdecode(node.content))
        else:
            raise refused(path, "was a socket, FIFO or device, which is not recorded")
        if node.kind != "symlink":
            parent, name = self._disk.dirs.parent(self._disk.canonical(path))
            with parent as at:
                self._disk.sys.chmod(name, node.mode, dir_fd=at)

    def _put_symlink(self, path: str, target: str) -> None:
        path = self._disk.canonical(path)
        with shielded(), self._scope.lock, self._writing(path):
            parent, name, rest = self._disk.dirs.anchor(path)
            with parent as at:
                staged = self._staging.symlink(target)
                self._place(path, at, name, rest, staged=staged)

    # --- views

    def readonly(self) -> Filesystem:
        """See `Filesystem.readonly`."""
        return ReadOnlyFilesystem(self)

    def sub(self, path: str) -> Filesystem:
        """See `Filesystem.sub`."""
        return SubFilesystem(self, path)


class _HostTree(FilesystemTree):
    """The directory as a search sees it."""

    __slots__ = ("_host",)

    def __init__(self, fs: HostFilesystem) -> None:
        super().__init__(fs)
        self._host = fs

    def scan(self, path: str, /) -> Iterable[tuple[str, FileKind]]:
        return self._host.kinds(path)


_opened: WeakTable[HostFilesystem, None] = WeakTable()


def _close_all() -> None:
    """A process that ends by itself keeps what it wrote; only one that is killed is rolled back."""
    for fs in _opened.living():
        with suppress(Exception):
            fs.close()


atexit.register(_close_all)
