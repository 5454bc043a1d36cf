"""Glob patterns as in pathlib, matched while walking: directories that cannot hold a match are not read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from fnmatch import translate
from typing import Final

from ...errors import PathRefusedError, PatternError
from ...fence import check_wanted
from ..paths import MAX_PATH_BYTES, ROOT, join
from ..protocol import FileKind
from .gitignore import Ignore
from .walk import WalkTree, children, while_wanted

MAX_PARTS: Final = 64
"""Each part of a pattern may be tried at each name."""

_magic = re.compile(r"[*?\[]").search

Match = Callable[[str], object]
States = frozenset[int]


class Glob:
    """A compiled pattern: a row of parts, walked with the set of positions that may come next.

    `**` stands for any number of directories, and at the end for everything below; a pattern that ends in `/`
    finds directories only. Names that start with a dot are matched like others. Raises `PatternError` for an
    empty or overlong pattern and `PathRefusedError` for one with `..`.
    """

    __slots__ = ("_directories_only", "_parts", "end", "start")

    def __init__(self, pattern: str) -> None:
        texts = _split(pattern)
        self._directories_only = pattern.endswith("/")
        self._parts = [_compile(text) for text in texts]
        self.end: int = len(self._parts)
        self.start: States = self._close({0})

    def step(self, states: States, name: str) -> tuple[States, bool]:
        """The positions after `name`, and whether the pattern is used up by it."""
        following: set[int] = set()
        done = False
        for index in states:
            if index == self.end:
                continue
            part = self._parts[index]
            if part is None:
                following.add(index)
                done = done or index + 1 == self.end
            elif part == name if isinstance(part, str) else part(name):
                following.add(index + 1)
                done = done or index + 1 == self.end
        return self._close(following), done

    def accepts(self, states: States, kind: FileKind, *, done: bool) -> bool:
        """Whether what was reached is a match; an unused `**` at the end stands for the directory itself."""
        if kind == "directory":
            return self.end in states
        return done and not self._directories_only

    def names(self, states: States) -> list[str] | None:
        """The only names that can come next, or None when the directory must be read to know."""
        found: set[str] = set()
        for index in states:
            if index < self.end:
                part = self._parts[index]
                if not isinstance(part, str):
                    return None
                found.add(part)
        return sorted(found)

    def _close(self, states: set[int]) -> States:
        reached = set(states)
        for index in states:
            while index < self.end and self._parts[index] is None:
                index += 1
                reached.add(index)
        return frozenset(reached)


def _split(pattern: str) -> list[str]:
    if not isinstance(pattern, str) or not pattern.strip("/"):
        raise PatternError("A glob pattern must be text and not empty; '**' finds everything.")
    if len(pattern) > MAX_PATH_BYTES or "\0" in pattern:
        raise PatternError("The glob pattern is too long or has a NUL character; use a shorter, plain one.")
    texts = [text for text in pattern.split("/") if text not in {"", "."}]
    if ".." in texts:
        raise PathRefusedError(f"The pattern {pattern!a} goes up with '..'; give it from the root, without '..'.")
    if pattern.startswith("/") and texts[:1] == ["workspace"]:
        del texts[0]
    if len(texts) > MAX_PARTS:
        raise PatternError(f"The glob pattern has more than {MAX_PARTS} parts; use '**' for many directories.")
    # "**" twice in a row means the same as once.
    return [text for index, text in enumerate(texts) if text != "**" or texts[index - 1 : index] != ["**"]]


def _compile(text: str) -> str | Match | None:
    if text == "**":
        return None
    if not _magic(text):
        return text
    try:
        return re.compile(translate(text)).match
    except re.error as error:
        raise PatternError(f"The glob pattern has a part that cannot be used, {text!a}: {error}.") from error


def walk_glob(
    tree: WalkTree,
    pattern: str,
    *,
    path: str = ROOT,
    gitignore: bool = False,
    check: Callable[[], None] = check_wanted,
) -> Iterator[tuple[str, FileKind]]:
    """What matches at or below the directory `path`, with its kind; files come in path order.

    `check` is called before a directory is read, and within a large one; what it raises ends the walk.
    """
    glob = Glob(pattern)
    ignore = Ignore(tree.chunks) if gitignore else None
    if ignore is not None and ignore.ignores_above(path):
        return
    stack: list[tuple[str, FileKind, States, bool]] = [(path, "directory", glob.start, False)]
    while stack:
        current, kind, states, done = stack.pop()
        if glob.accepts(states, kind, done=done):
            yield current, kind
        if kind == "directory" and states - {glob.end}:
            check()
            for child, child_kind in while_wanted(_next(tree, glob, current, states, ignore, check)[::-1], check):
                following, done = glob.step(states, child.rpartition("/")[2])
                if following:
                    stack.append((child, child_kind, following, done))


def _next(  # noqa: PLR0917 - what the one walk above has
    tree: WalkTree, glob: Glob, path: str, states: States, ignore: Ignore | None, check: Callable[[], None]
) -> list[tuple[str, FileKind]]:
    names = glob.names(states)
    if names is None:
        return children(tree, path, ignore, check)
    found: list[tuple[str, FileKind]] = []
    for name in names:
        child = join(path, name)
        kind = tree.kind(child)
        if kind is not None and not (ignore is not None and ignore.ignores(child, kind)):
            found.append((child, kind))
    return found
