"""What is made here can be read by its owner alone; what others made keeps its rights."""

from __future__ import annotations

import logging
import os
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from weakincentives.private_files import create_private, ensure_private, make_private_directory
from weakincentives.prompt.overrides import LocalPromptOverridesStore, PromptDescriptor, PromptOverride
from weakincentives.runtime.ledger import SqliteEffectLedger


def mode(path: Path) -> int:
    """The rights alone."""
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.fixture(autouse=True, params=[0o000, 0o022])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    """Also where everything that is made without care is open to all."""
    before = os.umask(request.param)
    yield
    os.umask(before)


def test_directories_that_are_made_are_private_and_others_stay(tmp_path: Path) -> None:
    """Each missing one is made 0700; one that is there is not touched; a file in the way is an error."""
    tmp_path.chmod(0o755)
    make_private_directory(tmp_path / "a/b/c")
    assert [mode(tmp_path / name) for name in (".", "a", "a/b", "a/b/c")] == [0o755, 0o700, 0o700, 0o700]
    (tmp_path / "a").chmod(0o770)
    make_private_directory(tmp_path / "a/b")
    assert mode(tmp_path / "a") == 0o770
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        make_private_directory(tmp_path / "file/below")


def test_files_are_new_and_private(tmp_path: Path) -> None:
    """Nothing that is there is opened, least of all through a symlink."""
    with create_private(tmp_path / "new") as file:
        file.write(b"x")
    assert mode(tmp_path / "new") == 0o600
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for name in ("new", "link"):
        with pytest.raises(FileExistsError):
            create_private(tmp_path / name)
    assert not (tmp_path / "elsewhere").exists()
    ensure_private(tmp_path / "link")
    assert mode(tmp_path / "elsewhere") == 0o600
    (tmp_path / "elsewhere").chmod(0o644)
    ensure_private(tmp_path / "link")
    assert mode(tmp_path / "elsewhere") == 0o644


def test_a_ledger_and_its_side_files_are_private(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """All three files, while it is open, and nothing is said about them."""
    with SqliteEffectLedger(tmp_path / "ledger.db"):
        assert {path.name: mode(path) for path in tmp_path.iterdir()} == {
            "ledger.db": 0o600,
            "ledger.db-wal": 0o600,
            "ledger.db-shm": 0o600,
        }
    with SqliteEffectLedger(tmp_path / "ledger.db"):
        pass
    assert caplog.records == []


def test_a_ledger_that_others_can_read_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With its mode and what to do; the mode is not changed, also that of an empty file."""
    for name, rights in (("ledger.db", 0o644), ("other.db", 0o640)):
        caplog.clear()
        path = tmp_path / name
        path.touch()
        path.chmod(rights)
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                with SqliteEffectLedger(path):
                    assert mode(path) == rights
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert f"(mode {rights:04o})" in caplog.text
        assert f"chmod 600 {path}" in caplog.text


def test_making_a_ledger_drops_no_lock(tmp_path: Path) -> None:
    """The file is not opened again beside SQLite: closing it would drop the locks of this process's transactions."""
    path = tmp_path / "ledger.db"
    with SqliteEffectLedger(path):
        pass
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with SqliteEffectLedger(path, patience=0.1):
        child = os.fork()
        if child == 0:
            try:
                sqlite3.connect(path, timeout=0, isolation_level=None).execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                os._exit(0)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
    holder.close()


def test_overrides_are_private(tmp_path: Path) -> None:
    """Folders and files that are made; a folder of the user's keeps its mode, and so does a file of his."""
    tmp_path.chmod(0o755)
    for root in (tmp_path, tmp_path / "made/here"):
        store = LocalPromptOverridesStore(root)
        store.upsert(PromptDescriptor("a/b", "key", {}, {}), PromptOverride("a/b", "key", "latest"))
        assert mode(root / "a/b/key@latest.json") == 0o600
        assert mode(root / "a") == mode(root / "a/b") == 0o700
    assert mode(tmp_path) == 0o755
    assert mode(tmp_path / "made") == mode(tmp_path / "made/here") == 0o700
    assert [path.name for path in (tmp_path / "a/b").iterdir()] == ["key@latest.json"]
