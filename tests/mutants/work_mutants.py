"""Seeded faults in what bounds patterns and the work of the file tools."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_WORK = ("tests/contrib/test_bounded_work.py",)
_PATTERNS = ("tests/filesystem/test_patterns.py",)
_LARGE = ("tests/filesystem/test_host_scan_large.py",)
_DURATIONS = ("tests/core/test_durations.py",)

MUTANTS = [
    Mutant(
        "NaN is taken for a duration",
        "clock.py",
        "    if is_finite_number(value) and (value > 0 or (zero and value == 0)):",
        "    if not value <= 0 or (zero and value == 0):",
        _DURATIONS,
    ),
    Mutant(
        "a search takes any time limit",
        "filesystem/search/__init__.py",
        'monotonic() + checked_seconds("timeout", timeout, zero=True)',
        "monotonic() + timeout",
        _DURATIONS,
    ),
    Mutant(
        "nested repetitions are not multiplied",
        "filesystem/search/pattern_syntax.py",
        "(most > 1 and most * self._repeatable > MAX_REPETITION)",
        "False",
        _PATTERNS,
    ),
    Mutant(
        "a pattern sees line breaks",
        "filesystem/search/grep.py",
        "options.never_nl = True",
        "options.never_nl = False",
        _PATTERNS,
    ),
    Mutant(
        "the worker's classes hold line breaks",
        "filesystem/search/pattern_syntax.py",
        'text if self._for_re2 else f"(?:(?!\\\\n){text})"',
        "text",
        _PATTERNS,
    ),
    Mutant(
        "a part of a long line is searched in its place",
        "filesystem/search/grep.py",
        "            size *= 2\n        return line_end",
        "            size *= 2\n            return _whole(block, start + self._size)\n        return line_end",
        _PATTERNS,
    ),
    Mutant(
        "the search does not read the clock",
        "filesystem/search/grep.py",
        "        if monotonic() > self._deadline:\n            raise TimeoutError",
        "        if self._deadline < 0:\n            raise TimeoutError",
        _PATTERNS,
    ),
    Mutant(
        "compiled patterns stay in the engine's cache",
        "filesystem/search/grep.py",
        "re2.purge()",
        "pass",
        _PATTERNS,
    ),
    Mutant(
        "a call that was given up goes on reading a long file",
        "filesystem/disk/reading.py",
        "        while piece:\n            check_wanted()\n",
        "        while piece:\n",
        _WORK,
    ),
    Mutant(
        "a call that was given up goes on with a stream",
        "filesystem/disk/reading.py",
        "                    check_wanted()",
        "                    pass",
        _WORK,
    ),
    Mutant(
        "a call that was given up goes on listing",
        "filesystem/search/walk.py",
        "        if index % _OFTEN == 0:\n            check()\n",
        "",
        _WORK,
    ),
    Mutant(
        "a read-only call that was given up goes on until it is answered",
        "runtime/invoke.py",
        "    except OutOfTime:\n        context.give_up()\n",
        "    except OutOfTime:\n",
        _WORK,
    ),
    Mutant(
        "the mirror reads holes",
        "filesystem/disk/staging.py",
        "            return size\n        if error",
        "            return at\n        if error",
        _LARGE,
    ),
    Mutant(
        "the mirror copies files of any size",
        "filesystem/disk/copies.py",
        "if min(info.st_size, info.st_blocks * 512) <= self._max_bytes:",
        "if self._max_bytes >= 0:",
        _LARGE,
    ),
    Mutant(
        "a file without a copy counts as restored when its time is the same",
        "filesystem/disk/manifest.py",
        "(self.ctime, self.inode, self.mtime, self.size) == (other.ctime, other.inode, other.mtime, other.size)",
        "(self.mtime, self.size) == (other.mtime, other.size)",
        _LARGE,
    ),
    Mutant(
        "an undo is given up with its call",
        "filesystem/disk/restoration.py",
        "self._sys.fstat(source), check=never_stop)",
        "self._sys.fstat(source))",
        _LARGE,
    ),
    Mutant(
        "a call that was given up goes on copying",
        "filesystem/disk/staging.py",
        "            check()\n            done = _copy",
        "            done = _copy",
        _WORK,
    ),
    Mutant(
        "an interrupt does not end a copy",
        "fence.py",
        "    if current_shield().noted:",
        "    if False:",
        _WORK,
    ),
    Mutant(
        "a copy begins though there is no room",
        "filesystem/disk/staging.py",
        "    if found.st_blocks * 512 > sys.free(target):",
        "    if found.st_blocks < 0:",
        _WORK,
    ),
    Mutant(
        "originals are kept without a limit",
        "contrib/files/tracked.py",
        "                self._room -= original.size",
        "                self._room -= 0",
        _WORK,
    ),
    Mutant(
        "the diff of a big file has the line numbers of its part",
        "contrib/files/diffs.py",
        'return before.count(b"\\n", 0, start),',
        "return 0,",
        _WORK,
    ),
    Mutant(
        "a replacement may be of any size",
        "contrib/files/edits.py",
        "    if size > max(MAX_EDITED_BYTES, len(content)):",
        "    if size < 0:",
        _WORK,
    ),
]
