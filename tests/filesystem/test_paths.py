"""One spelling for every path."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weakincentives.errors import PathRefusedError
from weakincentives.filesystem.paths import ancestors, is_below, join, normalise, split
from weakincentives.testing.code_escapes import ESCAPES


@pytest.mark.parametrize(
    ("path", "canonical"),
    [
        ("", "."),
        (".", "."),
        ("/", "."),
        ("/workspace", "."),
        ("/workspace/", "."),
        ("//workspace//", "."),
        ("./", "."),
        ("a", "a"),
        ("/a", "a"),
        ("/workspace/a", "a"),
        ("/workspace/workspace/a", "workspace/a"),
        ("workspace/a", "workspace/a"),
        ("workspace", "workspace"),
        ("/workspaces/a", "workspaces/a"),
        ("/workspace.txt", "workspace.txt"),
        ("a/./b//c/", "a/b/c"),
        (".hidden/.x", ".hidden/.x"),
        ("...", "..."),
        ("a..b", "a..b"),
        ("..a", "..a"),
        ("a\\b", "a\\b"),
        ("100%", "100%"),
        ("a%20b", "a%20b"),
        ("%2e", "%2e"),
        ("gr\u00fc\u00dfe", "gr\u00fc\u00dfe"),
        ("x" * 255, "x" * 255),
        ("\u00e9" * 127, "\u00e9" * 127),
        ("/".join(["d" * 100] * 40), "/".join(["d" * 100] * 40)),
    ],
)
def test_every_spelling_has_one_canonical_form(path: str, canonical: str) -> None:
    """A leading slash, `/workspace`, empty parts and dots vanish; all else stays as it is."""
    assert normalise(path) == canonical


def test_there_are_sixty_attacks_or_more() -> None:
    """The list of attack paths is long and has no repetitions."""
    assert len(set(ESCAPES)) == len(ESCAPES) >= 60


@pytest.mark.parametrize("path", ESCAPES, ids=lambda path: ascii(path)[:40])
def test_every_escape_is_refused(path: str) -> None:
    """Refused with an error in ASCII, of bounded length, that is a `PermissionError` too."""
    with pytest.raises(PathRefusedError) as caught:
        normalise(path)
    assert isinstance(caught.value, PermissionError)
    assert str(caught.value).isascii()
    assert len(str(caught.value)) < 1200


@pytest.mark.parametrize(
    ("path", "fix"),
    [
        ("a/../b", "without '..'"),
        ("a\nb", "remove it"),
        ("\ud800", "UTF-8"),
        ("x" * 256, "shorter name"),
        ("a/" * 3000, "shorter one"),
        (7, "pass it as str"),
    ],
)
def test_a_refusal_names_the_fix(path: str, fix: str) -> None:
    """Each kind of refusal says what to do instead."""
    with pytest.raises(PathRefusedError, match=fix):
        normalise(path)


@given(st.text())
def test_what_is_accepted_stays_inside(path: str) -> None:
    """Whatever the text, the result has no part that goes up, no control character, and is its own canonical form."""
    try:
        canonical = normalise(path)
    except PathRefusedError:
        return
    assert normalise(canonical) == canonical
    assert canonical == "." or not {"", ".", ".."} & set(canonical.split("/"))
    assert not any(ord(character) < 32 for character in canonical)
    assert all(len(part.encode()) <= 255 for part in canonical.split("/"))


@given(st.lists(st.sampled_from(["a", ".b", "c.d", "-", "_", "..", ".", "", "e f"]), max_size=6))
def test_the_quick_way_and_the_thorough_one_agree(parts: list[str]) -> None:
    """Plain paths are passed without a closer look; a harmless detour through the closer look gives the same."""
    path = "/".join(parts)

    def outcome(text: str) -> str | None:
        try:
            return normalise(text)
        except PathRefusedError:
            return None

    assert outcome(path) == outcome(path + "/") == outcome("./" + path)


def test_helpers_work_on_canonical_paths() -> None:
    """Splitting, joining, ancestors and containment treat the root as what it is."""
    assert split("a/b/c") == ("a/b", "c")
    assert split("a") == (".", "a")
    assert [join(".", "a"), join("a", "."), join("a", "b"), join(".", ".")] == ["a", "a", "a/b", "."]
    assert ancestors("a/b/c") == [".", "a", "a/b"]
    assert ancestors(".") == []
    assert is_below("a/b", "a")
    assert is_below("a", "a")
    assert is_below("a", ".")
    assert not is_below("ab", "a")
