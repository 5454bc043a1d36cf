"""One canonical spelling for every path; misleading paths are refused.

A canonical path is `"."` for the root, else parts joined by `/`, without a leading slash. An implementation
calls `normalise` on each path it is given and works with canonical ones from there on.

Backslashes are ordinary characters, as on any POSIX system, unless they spell a `..`.
"""

from __future__ import annotations

import errno
import os
import re
from unicodedata import normalize
from urllib.parse import unquote

from ..errors import PathRefusedError
from .reserved import reserved

ROOT = "."
"""The canonical path of the root."""

MAX_PART_BYTES = 255
MAX_PATH_BYTES = 4095

# Nearly all paths are of this form and need no further look: this is asked on every operation. A part may
# start with one dot, not with two, so that neither `.` nor `..` passes.
_plain = re.compile(r"\.?[A-Za-z0-9_-][A-Za-z0-9_.-]*(?:/\.?[A-Za-z0-9_-][A-Za-z0-9_.-]*)*").fullmatch
_control = re.compile(r"[\x00-\x1f\x7f-\x9f]").search
_surrogate = re.compile(r"[\ud800-\udfff]").search


def normalise(path: str) -> str:
    """The canonical form of a path as users and models write it.

    A leading `/`, `/workspace/` and `/workspace` itself mean the root; empty parts and `.` vanish. Raises
    `PathRefusedError` for `..` in any spelling (percent-encoded, with backslashes, as look-alike characters),
    control characters, lone surrogates, parts over 255 bytes, paths over 4,095 bytes, names that are `reserved`, and
    anything but text.

    >>> normalise("/workspace//src/./main.py"), normalise("src/main.py/"), normalise("/")
    ('src/main.py', 'src/main.py', '.')
    """
    try:
        return _usual[path]
    except (KeyError, TypeError):  # not asked before, or nothing that could be
        return _normalise(path)


_usual: dict[str, str] = {}
"""The canonical form of paths that were asked for. One call asks for the same path many times over."""

_MAX_USUAL = 4096


def _normalise(path: str) -> str:
    if type(path) is str and len(path) <= MAX_PART_BYTES:
        rest = path.removeprefix("/workspace/")
        if _plain(rest):
            if "wink" in rest.casefold():
                _checked_parts(path)
            if len(_usual) >= _MAX_USUAL:
                _usual.clear()
            _usual[path] = rest
            return rest
    return "/".join(_checked_parts(path)) or ROOT


def _checked_parts(path: object) -> list[str]:
    if not isinstance(path, str):
        raise PathRefusedError(f"A path must be text, not {type(path).__name__}; pass it as str.")
    _check_characters(path)
    parts = [part for part in path.split("/") if part not in {"", "."}]
    if path.startswith("/") and parts and parts[0] == "workspace":
        del parts[0]
    for part in parts:
        _check_part(part, path)
    return parts


def _check_characters(path: str) -> None:
    if found := _control(path):
        raise PathRefusedError(
            f"The path {_shown(path)} has the control character {found[0]!a}; remove it from the path."
        )
    if _surrogate(path):
        raise PathRefusedError(
            f"The path {_shown(path)} is not valid Unicode; use a name that can be encoded as UTF-8."
        )
    if len(path) > MAX_PATH_BYTES or len(path.encode()) > MAX_PATH_BYTES:
        raise PathRefusedError(f"The path {_shown(path)} is over {MAX_PATH_BYTES} bytes long; use a shorter one.")


def _check_part(part: str, path: str) -> None:
    if _spells_parent(part):
        raise PathRefusedError(f"The path {_shown(path)} goes up with '..'; give the path from the root, without '..'.")
    if len(part) > MAX_PART_BYTES // 4 and len(part.encode()) > MAX_PART_BYTES:
        raise PathRefusedError(
            f"The path {_shown(path)} has a name over {MAX_PART_BYTES} bytes long; use a shorter name."
        )
    if reserved(part):
        raise PathRefusedError(f"The path {_shown(path)} has a name that is reserved for undo state; use another name.")


def _spells_parent(part: str) -> bool:
    """Whether some reader down the line could take the part for `..` (or for a path that holds one)."""
    if part.isalnum():
        return False
    for _ in range(3):
        spelling = normalize("NFKC", part).replace("\\", "/")
        if "\0" in spelling or any(piece.strip() == ".." for piece in spelling.split("/")):
            return True
        decoded = unquote(part, errors="replace")
        if decoded == part:
            return False
        part = decoded
    return True  # encoded three times over: no honest name


def _shown(path: str) -> str:
    return ascii(path if len(path) <= 80 else path[:77] + "...")


def addressable(path: str) -> bool:
    """Whether the API would take this path as it is; other programs make names that it does not show."""
    try:
        return normalise(path) == path
    except PathRefusedError:
        return False


def split(path: str) -> tuple[str, str]:
    """The parent and the last name of a canonical path other than the root."""
    parent, _, name = path.rpartition("/")
    return parent or ROOT, name


def join(base: str, path: str) -> str:
    """One canonical path below another; both may be the root."""
    if base == ROOT:
        return path
    return base if path == ROOT else f"{base}/{path}"


def ancestors(path: str) -> list[str]:
    """The directories above a canonical path, the root first."""
    if path == ROOT:
        return []
    found = [ROOT]
    position = path.find("/")
    while position >= 0:
        found.append(path[:position])
        position = path.find("/", position + 1)
    return found


def is_below(path: str, directory: str) -> bool:
    """Whether the canonical path is the directory itself or something in it."""
    return directory in (ROOT, path) or path.startswith(directory + "/")


def not_found(path: str) -> FileNotFoundError:
    """Nothing is there."""
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def file_exists(path: str) -> FileExistsError:
    """Something is there that would be lost."""
    return FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)


def is_a_directory(path: str) -> IsADirectoryError:
    """A file was expected."""
    return IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)


def not_a_directory(path: str) -> NotADirectoryError:
    """A directory was expected."""
    return NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)


def not_empty(path: str) -> OSError:
    """The directory holds something, and `recursive=True` was not given."""
    return OSError(errno.ENOTEMPTY, "Directory not empty; pass recursive=True to delete all that is in it", path)


def root_refused(verb: str) -> PathRefusedError:
    """The root itself stays where it is."""
    return PathRefusedError(f"The root cannot be {verb}; name something in it.")


def into_itself(source: str, target: str) -> PathRefusedError:
    """A directory cannot become part of itself."""
    return PathRefusedError(
        f"{_shown(source)} cannot go into itself at {_shown(target)}; choose a target outside of it."
    )
