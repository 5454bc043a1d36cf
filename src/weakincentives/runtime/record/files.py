"""The files of a run: what each call changed, with content before and after; and files as they were at a step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, final, get_args

from ...errors import RecordError, WorldChangedError
from ...fence import Guard
from ...filesystem import FileChanges, Filesystem
from ...filesystem.protocol import FileNode, large_file
from ...filesystem.views import GuardedFilesystem, NotingFilesystem
from .protocol import RunStore
from .rows import Content, FileStep, digest_of, size_of

World = Literal["check", "keep", "restore"]
"""What to do about files that another program changed while a run was down: refuse, take them as they are, or write
what is on record over them."""

FilesToKeep = Literal["changed", "read", "all"]
"""Which files a record keeps: those that calls change; also those that handlers read, and the paths where they found
nothing; also all that are there when the run begins. The larger ones make a record that replays elsewhere."""

FileRows = Sequence[tuple[str, str | None, str | None]]
"""Paths, each with the node before and after as a row holds them."""

_FileRow = tuple[str, str | None, str | None]

_MAX_LISTED = 20
_PART_ROWS = 1_000
_PART_BYTES = 8 * 1024 * 1024


class KeptFile(NamedTuple):
    """A path that another program changed while a run was down, and that is kept as it is."""

    path: str
    recorded: str | None
    node: FileNode | None


def checked_files(name: str, keep: FilesToKeep) -> None:
    """`ValueError` unless it is one of the words."""
    if keep not in get_args(FilesToKeep):
        raise ValueError(f"{name}= is 'changed', 'read' or 'all', got {keep!r}.")


@final
class FileRecorder:
    """Records the changes of one filesystem and makes them again."""

    def __init__(self, fs: Any, keep: FilesToKeep = "changed", max_file: int = 0) -> None:
        self.fs: Any = fs
        self._max_file = max_file
        self._noted: dict[str, None] = {}
        self._known: dict[str, str | None] = {}
        self._notes_reads = keep != "changed"

    def changes(
        self, snapshot: Any, changed: FileChanges
    ) -> tuple[list[tuple[str, str | None, str | None]], dict[str, Content]]:
        """Each path that a call changed with the node before and after, and the content that these refer to."""
        rows: list[tuple[str, str | None, str | None]] = []
        blobs: dict[str, Content] = {}
        for name in (*changed.added, *changed.changed, *changed.removed):
            path = name.rstrip("/")
            rows.append((path, self._text(path, blobs, snapshot), self._text(path, blobs)))
        return rows, blobs

    def _text(self, path: str, blobs: dict[str, Content], snapshot: Any = None) -> str | None:
        """What is at the path, or was when the snapshot was taken; large files are not held whole."""
        large = large_file(self.fs, path, snapshot)
        if large is not None:
            name = digest_of(large)
            blobs[name] = large
            return f"file:{large.mode:o}:{name}"
        return node_text(self.fs.node(path) if snapshot is None else self.fs.node_at(snapshot, path), blobs)

    # What is read.

    def view(self, fs: Filesystem, guard: Guard) -> GuardedFilesystem:
        """What a call sees of a filesystem; see `FilesView`. Of this one, the paths that are read are noted."""
        if self._notes_reads and fs is self.fs:
            return NotingFilesystem(fs, guard, self._note)
        return GuardedFilesystem(fs, guard)

    def _note(self, path: str) -> None:
        self._noted[path] = None  # for the row of the call that ends next; from any thread

    def with_reads(self, rows: FileRows, blobs: Mapping[str, Content]) -> tuple[FileRows, Mapping[str, Content]]:
        """The rows of a call with those of paths that were read since the last one: before and after are the same.

        Only where something else is there than the record has last. Of a path that the call changed, its row has what
        was read.
        """
        if not self._notes_reads:
            return rows, blobs
        self._known.update((path, after) for path, _, after in rows)
        changed = {path for path, _, _ in rows}
        made, content = list(rows), dict(blobs)
        while self._noted:
            path, _ = self._noted.popitem()
            if path in changed or path == ".":
                continue
            found: dict[str, Content] = {}
            is_kept, node = self._kept_node(path, found)
            if is_kept and (path not in self._known or self._known[path] != node):
                self._known[path] = node
                made.append((path, node, node))
                content.update(found)
        return made, content

    def manifest(self) -> Iterator[tuple[FileRows, Mapping[str, Content]]]:
        """Everything that is there, in parts of a few megabytes; see `docs/record.md` for what is left out."""
        rows: list[tuple[str, str | None, str | None]] = []
        blobs: dict[str, Content] = {}
        size = 0
        for path in self.fs.glob("**/*", gitignore=True):
            found: dict[str, Content] = {}
            is_kept, node = self._kept_node(path, found)
            if is_kept and node is not None:
                self._known[path] = node
                rows.append((path, node, node))
                blobs.update(found)
                size += sum(map(size_of, found.values()))
            if len(rows) >= _PART_ROWS or size >= _PART_BYTES:
                yield rows, blobs
                rows, blobs, size = [], {}, 0
        yield rows, blobs

    def _kept_node(self, path: str, blobs: dict[str, Content]) -> tuple[bool, str | None]:
        """What is at the path; False when it is nothing that is kept: too large, a device, not to be read."""
        try:
            if self.fs.exists(path):
                there = self.fs.stat(path)
                if there.size > self._max_file or there.kind not in ("file", "directory", "symlink"):
                    return False, None
            return True, self._text(path, blobs)
        except OSError:
            return False, None

    # Going on.

    def restore(self, store: RunStore, run_id: str, world: World) -> tuple[KeptFile, ...]:
        """Bring every path to what the record has last; those that were kept as they are instead.

        A path that is as it was before its last step is brought up to that step: the process ended between the two. So
        are all when each is as it was before its first step: these are the files that the run began with, made anew.
        Anything else was written by another program; then `WorldChangedError`, unless `world` says what to do. Paths
        that were only read are left alone.
        """
        first: dict[str, FileStep] = {}
        last: dict[str, FileStep] = {}
        steps = store.files(run_id)
        self._known = dict(last_nodes(steps))
        changed_paths = {step.path for step in steps if step.before != step.after}
        for step in steps:
            if step.path not in changed_paths:
                continue
            first.setdefault(step.path, step)
            last[step.path] = step
        now = {path: self._text(path, {}) for path in last}
        is_new = all(now[path] == step.before for path, step in first.items())
        todo = [step for path, step in last.items() if now[path] != step.after]
        changed: list[FileStep] = []
        if not is_new and world != "restore":
            changed = [step for step in todo if now[step.path] != step.before]
            todo = [step for step in todo if now[step.path] == step.before]
        if changed and world == "check":
            raise _world_changed(
                {step.path: (step.after, now[step.path]) for step in changed},
                "Resume with world='keep' to go on with them as they are, or world='restore' to undo those changes.",
            )
        kept = tuple(KeptFile(step.path, step.after, self.fs.node(step.path)) for step in changed)
        self._known.update((step.path, now[step.path]) for step in changed)
        self.put({step.path: step.after for step in todo}, store)
        return kept

    def put(self, nodes: Mapping[str, str | None], store: RunStore) -> None:
        """Put these nodes, as rows hold them, at their paths."""
        # What is gone first, from the bottom up; then directories before what is in them.
        for path in sorted((path for path, node in nodes.items() if node is None), reverse=True):
            self.fs.put_node(path, None)
        for path in sorted(path for path, node in nodes.items() if node is not None):
            self.fs.put_node(path, node_of(nodes[path], store))
            self._known[path] = nodes[path]

    def undo_since(self, seq: int, store: RunStore, run_id: str, world: World) -> list[_FileRow]:
        """The rows that bring every path to what it was at a step, by what was before the steps after it.

        `WorldChangedError` when another program wrote to one of them since, unless `world` says what to do.
        """
        first: dict[str, str | None] = {}
        last: dict[str, str | None] = {}
        for step in store.files(run_id):
            if step.seq > seq and step.before != step.after:
                first.setdefault(step.path, step.before)
                last[step.path] = step.after
        rows = [(path, last[path], before) for path, before in first.items() if last[path] != before]
        if world == "restore":
            return rows
        now = {path: self._text(path, {}) for path, _, _ in rows}
        changed = {path: (after, now[path]) for path, after, _ in rows if now[path] != after}
        if world == "check" and changed:
            raise _world_changed(
                changed,
                "Undo with world='keep' to leave them as they are, or world='restore' to undo those changes, too.",
            )
        return [row for row in rows if row[0] not in changed]


def _world_changed(nodes: Mapping[str, tuple[str | None, str | None]], fix: str) -> WorldChangedError:
    listed = ", ".join(list(nodes)[:_MAX_LISTED])
    return WorldChangedError(
        f"Not as the run left them: {listed}. Another program wrote to these files. {fix}",
        paths=list(nodes),
        nodes=dict(nodes),
    )


def told_of_kept(files: Sequence[KeptFile]) -> str:
    """What the model reads about files that another program changed while the run was down."""
    listed = "\n".join(f"- {file.path}{' (removed)' if file.node is None else ''}" for file in files[:_MAX_LISTED])
    more = f"\n- and {len(files) - _MAX_LISTED} more" if len(files) > _MAX_LISTED else ""
    return (
        "This run was interrupted. Meanwhile another program changed these files, and they are kept as they are now:\n"
        f"{listed}{more}\nRead them again before you rely on what they held."
    )


def node_text(node: FileNode | None, blobs: dict[str, Content]) -> str | None:
    """A node as a row holds it; its content is added to the blobs."""
    if node is None:
        return None
    if node.kind == "directory":
        return f"directory:{node.mode:o}"
    name = digest_of(node.content)
    blobs[name] = node.content
    return f"symlink:{name}" if node.kind == "symlink" else f"file:{node.mode:o}:{name}"


def node_of(text: str | None, store: RunStore) -> FileNode | None:
    """The node that a row holds."""
    match text.split(":") if text is not None else None:
        case None:
            return None
        case ["directory", mode]:
            return FileNode("directory", int(mode, 8))
        case ["symlink", name]:
            return FileNode("symlink", 0o777, store.blob(name))
        case ["file", mode, name]:
            return FileNode("file", int(mode, 8), store.blob(name))
        case _:
            raise RecordError(f"The record holds {text!r} in the place of a file.")


def last_nodes(steps: Iterable[FileStep]) -> Mapping[str, str | None]:
    """What is at each path after these steps, which are in order."""
    return {step.path: step.after for step in steps}


__all__ = [
    "FileRecorder",
    "FileRows",
    "FilesToKeep",
    "KeptFile",
    "World",
    "checked_files",
    "last_nodes",
    "node_of",
    "node_text",
    "told_of_kept",
]
