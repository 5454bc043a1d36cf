"""`glob`, `grep` and `search` for every implementation, over the small `WalkTree` interface."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import monotonic

from ...clock import checked_seconds
from ...fence import check_wanted
from ..paths import ROOT, normalise, not_found
from ..protocol import GrepMatch
from .globs import walk_glob
from .grep import grep_files
from .walk import WalkTree, require_directory, walk_files


class Searching:
    """The three searching methods of a filesystem; a subclass says with `_tree()` where to look."""

    __slots__ = ()

    def _tree(self) -> WalkTree:
        """The files as they are now; best a frozen state, so that a search sees one moment."""
        raise NotImplementedError

    def glob(self, pattern: str, *, path: str = ROOT, gitignore: bool = False) -> list[str]:
        """Files and directories that match, sorted; see `Filesystem.glob`."""
        tree = self._tree()
        start = normalise(path)
        require_directory(tree, start)
        return sorted(found for found, _ in walk_glob(tree, pattern, path=start, gitignore=gitignore))

    def grep(
        self,
        pattern: str,
        *,
        path: str = ROOT,
        glob: str | None = None,
        ignore_case: bool = False,
        max_matches: int = 1000,
        max_line_length: int = 1000,
        timeout: float = 5.0,
        gitignore: bool = False,
    ) -> list[GrepMatch]:
        """Lines that match the regular expression, in path order; see `Filesystem.grep`."""
        tree, deadline = self._tree(), monotonic() + checked_seconds("timeout", timeout, zero=True)

        def check() -> None:  # a tree without a match may be as large as one with many
            if monotonic() > deadline:
                raise TimeoutError
            check_wanted()

        return grep_files(
            tree,
            _searched(tree, normalise(path), glob, check, gitignore=gitignore),
            pattern,
            ignore_case=ignore_case,
            max_matches=max_matches,
            max_line_length=max_line_length,
            timeout=timeout,
        )

    def search(self, query: str, *, limit: int | None = None) -> list[str]:
        """Files whose path contains the text; see `Filesystem.search`."""
        return search_names(self._tree(), query, limit)


def _searched(
    tree: WalkTree, path: str, glob: str | None, check: Callable[[], None], *, gitignore: bool
) -> Iterable[str]:
    kind = tree.kind(path)
    if kind is None:
        raise not_found(path)
    if kind != "directory":
        return [path] if kind == "file" else []
    pattern = "**" if glob is None else glob if "/" in glob else f"**/{glob}"
    found = walk_glob(tree, pattern, path=path, gitignore=gitignore, check=check)
    return (path for path, kind in found if kind == "file")


def search_names(tree: WalkTree, query: str, limit: int | None = None) -> list[str]:
    """Paths of files that contain the text, ignoring case, sorted; the walk ends when `limit` is reached."""
    wanted = str(query).casefold()
    found: list[str] = []
    if limit is not None and limit <= 0:
        return found
    for path in walk_files(tree):
        if wanted in path.casefold():
            found.append(path)
            if limit is not None and len(found) >= limit:
                break
    return found


__all__ = ["Searching", "search_names"]
