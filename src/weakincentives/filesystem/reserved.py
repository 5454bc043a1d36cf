"""The names that undo state is kept under, which nothing else may have.

Uses the standard library only and runs on Python 3.8: the supervisor of a container is sent this file as it is.
"""

from __future__ import annotations

import re
from unicodedata import normalize

_state_name = re.compile(r"\.(?:.+\.)?wink(?:-[0-9a-f]{16})?", re.DOTALL).fullmatch

# Unicode's Default_Ignorable_Code_Point: shown as nothing, and dropped by filesystems that compare names loosely.
_ignorable = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]+"
)


def reserved(name: str) -> bool:
    """Whether a name is one that undo state is or was kept under, in any spelling that a filesystem may take for it.

    These are `.wink`, `.NAME.wink`, and both with `-` and 16 hexadecimal digits. Names are compared without case,
    compatibility forms, characters that are not shown, and trailing dots and spaces. `paths.normalise` refuses them,
    so no filesystem, view or tool shows, reads or makes one; the code that keeps undo state works on descriptors.

    >>> [reserved(name) for name in (".wink", ".Project.WINK-0123456789abcdef", "wink.py", ".winks")]
    [True, True, False, False]
    """
    first = name[:1]
    if first != "." and first.isascii():  # nearly all names
        return False
    if name.isascii():
        name = name.casefold()
    else:
        # As Unicode's NFKC_Casefold: folding case can undo the normal form.
        name = normalize("NFKC", normalize("NFKC", _ignorable.sub("", name)).casefold())
    return "wink" in name and _state_name(name.rstrip(". ")) is not None
