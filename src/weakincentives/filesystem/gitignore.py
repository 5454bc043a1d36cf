"""`.gitignore` rules, nested files included, as git reads them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from .paths import ROOT, ancestors, join
from .protocol import FileKind

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

MAX_RULES_BYTES = 1_000_000
MAX_INNER_DOUBLE_STARS = 2
"""Lines with more are passed over: on deep trees they would take too long."""


class Ignore:
    """Which paths the `.gitignore` files of a tree leave out. Lives for one search, reads on first need.

    `.git` itself is always left out. As in git, what is in an ignored directory cannot be brought back, so
    a walk that skips ignored directories asks only about the paths it meets.
    """

    __slots__ = ("_chunks", "_specs")

    def __init__(self, chunks: Callable[[str], Iterator[bytes]]) -> None:
        self._chunks = chunks
        self._specs: dict[str, GitIgnoreSpec | None] = {}

    def ignores(self, path: str, kind: FileKind) -> bool:
        """Whether the path is left out, given that no directory above it is."""
        if path == ".git" or path.endswith("/.git"):
            return True
        for directory in reversed(ancestors(path)):
            spec = self._spec(directory)
            if spec is None:
                continue
            below = path if directory == ROOT else path[len(directory) + 1 :]
            decision = spec.check_file(f"{below}/" if kind == "directory" else below).include
            if decision is not None:
                return decision
        return False

    def ignores_above(self, path: str) -> bool:
        """Whether the directory or one above it is left out."""
        above = [directory for directory in (*ancestors(path), path) if directory != ROOT]
        return any(self.ignores(directory, "directory") for directory in above)

    def _spec(self, directory: str) -> GitIgnoreSpec | None:
        if directory not in self._specs:
            self._specs[directory] = self._load(join(directory, ".gitignore"))
        return self._specs[directory]

    def _load(self, path: str) -> GitIgnoreSpec | None:
        content = b""
        try:
            for chunk in self._chunks(path):
                content += chunk
                if len(content) > MAX_RULES_BYTES:
                    break
        except OSError:
            return None
        return _parse(content.decode(errors="replace").splitlines())


def _parse(lines: list[str]) -> GitIgnoreSpec | None:
    from pathspec import GitIgnoreSpec  # noqa: PLC0415 - only searches with gitignore=True pay for it

    rules = [rule for line in lines if (rule := _rule(line)) is not None]
    return GitIgnoreSpec(rules) if rules else None


def _rule(line: str) -> GitIgnoreSpecPattern | None:
    """The line's rule, or None where git would find nothing in it either."""
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern  # noqa: PLC0415

    if line.strip("*/").count("**") > MAX_INNER_DOUBLE_STARS:
        return None
    try:
        expression, include = GitIgnoreSpecPattern.pattern_to_regex(line)
        return None if expression is None else GitIgnoreSpecPattern(re.compile(_tamed(expression)), include)
    except (ValueError, re.error):
        return None


_STAR = r"\[\^/\]\*"
_ATOM = r"(?:\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[^\\\[\]()/*?+^$|.])"
_repeated_stars = re.compile(f"(?:{_STAR}){{2,}}")
_inner_star = re.compile(f"{_STAR}((?:(?!{_STAR}){_ATOM})+)(?={_STAR})")


def _tamed(expression: str) -> str:
    """The same rule without its backtracking: `*a*a*a*a*b` took minutes on a name of 255 letters a.

    Between two stars of one name the first place that fits is as good as any, so it need not be reconsidered.
    """
    return _inner_star.sub(r"(?>[^/]*?\1)", _repeated_stars.sub("[^/]*", expression))


__all__ = ["Ignore"]
