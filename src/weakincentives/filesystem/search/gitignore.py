"""`.gitignore` rules, nested files included, as git reads them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice

from ..paths import ROOT, ancestors, join
from ..protocol import FileKind

Rule = tuple[Callable[[str], object], bool]
"""Whether a path matches, and whether it is then left out or included again."""

MAX_RULES_BYTES = 1_000_000
MAX_RULES = 2000
"""Of a file that has more, the first ones count: each is compiled, and asked about each path."""
MAX_RULE_LENGTH = 1000
MAX_INNER_DOUBLE_STARS = 2
"""Lines with more are passed over: on deep trees they would take too long."""


class Ignore:
    """Which paths the `.gitignore` files of a tree leave out. Lives for one search, reads on first need.

    `.git` itself is always left out. As in git, what is in an ignored directory cannot be included again, so
    a walk that skips ignored directories asks only about the paths it meets.
    """

    __slots__ = ("_chunks", "_rules")

    def __init__(self, chunks: Callable[[str], Iterator[bytes]]) -> None:
        self._chunks = chunks
        self._rules: dict[str, list[Rule]] = {}

    def ignores(self, path: str, kind: FileKind) -> bool:
        """Whether the path is left out, given that no directory above it is."""
        if path == ".git" or path.endswith("/.git"):
            return True
        for directory in reversed(ancestors(path)):
            below = path if directory == ROOT else path[len(directory) + 1 :]
            asked = f"{below}/" if kind == "directory" else below
            for matches, ignored in self._rules_of(directory):
                if matches(asked):
                    return ignored
        return False

    def ignores_above(self, path: str) -> bool:
        """Whether the directory or one above it is left out."""
        above = [directory for directory in (*ancestors(path), path) if directory != ROOT]
        return any(self.ignores(directory, "directory") for directory in above)

    def _rules_of(self, directory: str) -> list[Rule]:
        if directory not in self._rules:
            self._rules[directory] = self._load(join(directory, ".gitignore"))
        return self._rules[directory]

    def _load(self, path: str) -> list[Rule]:
        content = b""
        try:
            for chunk in self._chunks(path):
                content += chunk
                if len(content) > MAX_RULES_BYTES:
                    break
        except OSError:
            return []
        return _parse(content.decode(errors="replace").splitlines())


def _parse(lines: list[str]) -> list[Rule]:
    """The rules, last one first: the first that matches decides."""
    rules = [rule for line in islice(filter(_is_rule, lines), MAX_RULES) if (rule := _rule(line)) is not None]
    rules.reverse()
    return rules


def _is_rule(line: str) -> bool:
    return not line.startswith("#") and bool(line.strip()) and len(line) <= MAX_RULE_LENGTH


def _rule(line: str) -> Rule | None:
    """The line's rule, or None for what is none, which git passes over, too."""
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern  # noqa: PLC0415 - most searches need it not

    if line.strip("*/").count("**") > MAX_INNER_DOUBLE_STARS:
        return None
    try:
        expression, ignored = GitIgnoreSpecPattern.pattern_to_regex(line)
        return None if expression is None else (re.compile(_to_the_end(_tamed(expression))).search, bool(ignored))
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


def _to_the_end(expression: str) -> str:
    """The same rule for the path itself, not for what is above it: a walk has asked about that before."""
    if expression == ".":  # everything
        return expression
    if expression.endswith("/"):  # everything in a directory, but not the directory
        return expression + "."
    return expression + r"\Z"
