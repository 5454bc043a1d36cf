"""Compiled patterns that take bounded time and memory, whatever the pattern.

`google-re2` matches in this process: its time is linear in the text and its memory has a limit. Where it is not
installed, `regex` does in a process of its own that is limited and killed (`pattern_worker.py`).
"""

from __future__ import annotations

from typing import Any, Final, Protocol, final

MAX_MEMORY: Final = 8 << 20
"""What a pattern and its tables may take. Less makes some patterns slow: 2.3 s with 2 MiB, 0.07 s with 8."""


class Matcher(Protocol):
    """Finds a pattern in lines. Used by one thread; `close` it when the search is over, whatever happened."""

    def search(self, text: bytes, start: int, end: int, /) -> tuple[int, int] | None:
        """Where the first match in `text[start:end]` is, which is valid UTF-8 and begins and ends at line breaks.

        `TimeoutError` when it was stopped.
        """
        ...

    def close(self) -> None:
        """Give back what it holds."""
        ...


def compiled(pattern: str, *, ignore_case: bool, deadline: float) -> Matcher:
    """The pattern, ready to search until `deadline` (of `time.monotonic`); `PatternError` when it cannot be used.

    What reads patterns is imported by the first search: it compiles some of its own, and most programs never search.
    """
    try:
        import re2  # noqa: PLC0415 - as above
    except ImportError:
        from .pattern_worker import WorkerMatcher  # noqa: PLC0415 - only where re2 is missing

        return WorkerMatcher(pattern, ignore_case=ignore_case, deadline=deadline)
    return Re2Matcher(re2, pattern, ignore_case=ignore_case)


@final
class Re2Matcher:
    """A pattern compiled by RE2, which never backtracks."""

    __slots__ = ("_search",)

    def __init__(self, re2: Any, pattern: str, *, ignore_case: bool) -> None:
        from .pattern_syntax import Translation, too_large  # noqa: PLC0415 - see `compiled`

        text = Translation(pattern, ignore_case=ignore_case, for_re2=True).text
        options = re2.Options()
        options.max_mem = MAX_MEMORY
        options.never_nl = True
        options.never_capture = True
        options.log_errors = False
        try:
            self._search: Any = re2.compile(text.encode(), options).search
        except re2.error as error:
            reason = error.args[0] if error.args else b""
            raise too_large(pattern, reason.decode("ascii", "replace")) from error
        finally:
            re2.purge()  # its cache would keep the memory of 128 patterns

    def search(self, text: bytes, start: int, end: int, /) -> tuple[int, int] | None:
        """See `Matcher.search`."""
        found = self._search(text, start, end)
        return None if found is None else found.span()

    def close(self) -> None:
        """Nothing: its memory goes with it."""


__all__ = ["Matcher", "compiled"]
