"""State that was planted, copied, replayed or damaged, and what opening the root must make of it.

A case is a root in which a process was killed in the middle of a transaction, and a folder outside that nothing may
touch. A variant tampers with the case and says what is expected: "nothing" is undone, or the transaction is "undone".
It runs in the tests' own process, and as an ordinary user in one that `python -m tests.filesystem.planted` is.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Literal
from zlib import crc32

import pytest
from tests.filesystem.crash import Faulty, abandon, build, entry_of, keep_vault, open_host, picture, vault_of

from weakincentives.filesystem.disk import private_dir
from weakincentives.filesystem.disk.filesystem import HostFilesystem
from weakincentives.filesystem.disk.journal import Record, encode, frame, frames, header, read_header
from weakincentives.filesystem.disk.manifest import entry, pack
from weakincentives.filesystem.disk.private_dir import KEY
from weakincentives.filesystem.disk.state_dir import Authenticator

Expected = Literal["nothing", "undone"]


class Case:
    """A folder with `root`, killed in a transaction, `outside`, and the private directory in `state`."""

    def __init__(self, folder: Path, watch: Literal["scan"] | None = None) -> None:
        self._held: list[object] = []
        self.folder = folder
        self.watch: Literal["scan"] | None = watch
        self.root = folder / "root"
        self.outside = folder / "outside"
        build(self.root)
        build(self.outside)
        self.before = picture(self.root, exact=False)
        self.kill(self.root)
        self.entry = entry_of(self.root)
        self.vault = vault_of(self.root)
        self.journal = self.entry / "journal"

    def kill(self, root: Path) -> None:
        """A process that changes something in a transaction and is gone."""
        syscalls = Faulty()
        fs = open_host(root, syscalls, watch=self.watch)
        self._held.append(fs.savepoint())  # one that nobody holds counts as released
        fs.write("a.txt", "changed")
        fs.delete("t", recursive=True)
        fs.move("secret", "moved")
        fs.write("new.txt", "new")
        abandon(fs, syscalls)

    @property
    def keys(self) -> Authenticator:
        home = private_dir.find(private_dir.location(None))
        assert home is not None
        return Authenticator(home.root_key(self.entry.name))

    def forge(self, *records: Record) -> None:
        """Replace the records by these, signed with the right key: the worst that can be."""
        found = read_header(self.keys, self.journal.read_bytes())
        assert found is not None
        data, first = header(self.keys, found.body.rstrip(), 0)
        mac = first.mac
        for record in records:
            part, mac = frame(self.keys, mac, encode(record))
            data += part
        self.journal.write_bytes(data)

    def other(self) -> Path:
        """The entry of another root that was killed in the same way."""
        root = self.folder / "other"
        build(root)
        self.kill(root)
        return entry_of(root)


Variant = Callable[[Case], Expected]


def run(variant: Variant, folder: Path, place: str) -> None:
    """The case, the tampering, and what must hold afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        keep_vault(patch, place, folder)
        watch: Any = "scan" if variant.__name__.startswith("manifest_") else None
        case = Case(folder, watch)
        expected = variant(case)
        crashed = _looks(case.root)
        outside = picture(case.outside, links=False)
        private_dir._opened.clear()  # as a new process has it
        with HostFilesystem(case.root, watch=watch) as fs:
            assert picture(case.outside, links=False) == outside, "something outside was changed"
            wanted = case.before if expected == "undone" else crashed
            assert _looks(case.root) == _only_root(wanted), f"{expected} must be undone"
            held = fs.savepoint()
            fs.write("a.txt", "later")
            fs.delete(".git", recursive=True)
            fs.restore(held)
            fs.release(held)
            assert _looks(case.root) == _only_root(wanted), "going back works as ever"
        assert _looks(case.root) == _only_root(wanted), "closing changes nothing"
        assert picture(case.outside, links=False) == outside, "something outside was changed"


def _looks(root: Path) -> dict[str, tuple[object, ...]]:
    return _only_root(picture(root, exact=False))


def _only_root(looks: dict[str, tuple[object, ...]]) -> dict[str, tuple[object, ...]]:
    return {path: look for path, look in looks.items() if not path.startswith(".wink")}


# --- planted in or beside the root, in the formats of all versions


def _old_frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + crc32(body).to_bytes(4, "big") + body


def _old_journal(case: Case, folder: Path) -> None:
    folder.mkdir(mode=0o700)
    rows: list[list[Any]] = [
        ["move", "../outside/a.txt", "stolen", "", "", (case.outside / "a.txt").stat().st_ino, -1, []],
        ["delete", "../outside/secret", "", "", "../../outside/a.txt", 0, 0o777, [["..", 0]]],
        ["create", "a.txt", "", "stage-0", "", 0, -1, []],
    ]
    front = b"WNK2" + bytes(8)
    data = front + crc32(front).to_bytes(4, "big") + b"".join(_old_frame(json.dumps(row).encode()) for row in rows)
    (folder / "journal").write_bytes(data)
    (folder / "lock").write_bytes(b"")


def _old_manifest(case: Case, folder: Path) -> None:
    (folder / "mirror").mkdir(parents=True)
    rows: dict[str, list[Any]] = {
        "stolen": [0o100644, 0, 0, 1, 1, 1, 1, str(case.outside / "secret"), [], False, False]
    }
    body = json.dumps([rows, []]).encode()
    front = b"WNK2" + len(_old_frame(body)).to_bytes(8, "big")
    (folder / "mirror" / "manifest").write_bytes(_old_frame(body))
    (folder / "mirror" / "open").write_bytes(front + crc32(front).to_bytes(4, "big"))


def _copied_entry(case: Case, folder: Path) -> None:
    shutil.copytree(case.entry, folder, symlinks=True)


def _symlink(case: Case, folder: Path) -> None:
    folder.symlink_to(case.outside)


def _planted(what: Callable[[Case, Path], None], place: str) -> Variant:
    def variant(case: Case) -> Expected:
        what(case, case.root / place)
        return "undone"  # the real transaction; the planted one is not even looked at

    variant.__name__ = f"{what.__name__.strip('_')} in {place}"
    return variant


PLANTED: list[Variant] = [
    _planted(what, place)
    for what in (_old_journal, _old_manifest, _copied_entry, _symlink)
    for place in (".wink", ".wink-0123456789abcdef", "../.root.wink", "../.root.wink-0123456789abcdef")
]


# --- copied, put back, damaged


def journal_of_another_root(case: Case) -> Expected:
    shutil.copy(case.other() / "journal", case.journal)
    return "nothing"


def entry_of_another_root(case: Case) -> Expected:
    other = case.other()
    for name in ("journal", "root"):
        shutil.copy(other / name, case.entry / name)
    return "nothing"


def journal_of_an_earlier_time(case: Case) -> Expected:
    """Put back after its transaction was undone and its end written down."""
    data = case.journal.read_bytes()
    with HostFilesystem(case.root) as fs:
        (case.entry / "kept").touch()  # so that entry and vault stay
        if case.vault != case.entry:
            (case.vault / "kept").touch()
        fs.write("new.txt", "by the user")
        fs.write("moved", "by the user")
    case.journal.write_bytes(data)
    return "nothing"


def journal_of_an_earlier_time_in_an_open_transaction(case: Case) -> Expected:
    data = case.journal.read_bytes()
    HostFilesystem(case.root).close()
    case.kill(case.root)
    case.journal.write_bytes(data)
    return "nothing"


def journal_and_entry_of_an_earlier_time(case: Case) -> Expected:
    """A backup of the whole private entry, put back after the vault was made anew."""
    saved = case.folder / "backup"
    shutil.copytree(case.entry, saved, symlinks=True)
    HostFilesystem(case.root).close()
    assert not case.entry.exists()
    shutil.copytree(saved, case.entry, symlinks=True)
    return "nothing"


def root_copied(case: Case) -> Expected:
    """A copy has another inode, so it has no state."""
    copy = case.folder / "copy"
    shutil.copytree(case.root, copy, symlinks=True)
    shutil.rmtree(case.root)
    copy.rename(case.root)
    return "nothing"


def root_renamed(case: Case) -> Expected:
    case.root.rename(case.folder / "renamed")
    case.root = case.folder / "renamed"
    return "undone"


def header_damaged(case: Case) -> Expected:
    data = bytearray(case.journal.read_bytes())
    data[40] ^= 1
    case.journal.write_bytes(data)
    return "nothing"


def record_altered(case: Case) -> Expected:
    """The last record names another file: it counts as torn, and what stands before it is undone."""
    data = case.journal.read_bytes()
    assert b'"new.txt"' in data
    case.journal.write_bytes(data.replace(b'"new.txt"', b'"run.sh" '))
    case.before["new.txt"] = picture(case.root, exact=False)["new.txt"]
    return "undone"


def records_swapped(case: Case) -> Expected:
    """In another order none of them counts: the first one is not what follows the header."""
    data = case.journal.read_bytes()
    found = read_header(case.keys, data)
    assert found is not None
    parts = [data[part.start : part.end] for part in frames(case.keys, data, found.end, found.mac)]
    case.journal.write_bytes(data[: found.end] + b"".join(reversed(parts)))
    return "nothing"


def first_record_left_out(case: Case) -> Expected:
    data = case.journal.read_bytes()
    found = read_header(case.keys, data)
    assert found is not None
    parts = [data[part.start : part.end] for part in frames(case.keys, data, found.end, found.mac)]
    case.journal.write_bytes(data[: found.end] + b"".join(parts[1:]))
    return "nothing"


def statuses_damaged(case: Case) -> Expected:
    data = bytearray(case.journal.read_bytes())
    found = read_header(case.keys, bytes(data))
    assert found is not None
    for part in list(frames(case.keys, bytes(data), found.end, found.mac)):
        data[part.start] ^= 0x80
    case.journal.write_bytes(data)
    return "nothing"


def floors_damaged(case: Case) -> Expected:
    data = bytearray(case.journal.read_bytes())
    found = read_header(case.keys, bytes(data))
    assert found is not None
    data[found.end - 64 : found.end] = bytes(64)
    case.journal.write_bytes(data)
    return "nothing"


def journal_of_zeros(case: Case) -> Expected:
    case.journal.write_bytes(bytes(4096))
    return "nothing"


def description_damaged(case: Case) -> Expected:
    (case.entry / "root").write_bytes(b"\0" * 16 + b'["wink-root-2","/",".",false,1,1]')
    return "nothing"


def description_missing(case: Case) -> Expected:
    (case.entry / "root").unlink()
    return "nothing"


def number_of_the_transaction_gone(case: Case) -> Expected:
    (case.vault / "tx").write_bytes(bytes(16))
    return "nothing"


def key_replaced(case: Case) -> Expected:
    """Another key gives other names to the entries: this one is not found."""
    (case.entry.parent.parent / KEY).write_bytes(b"k" * 32)
    return "nothing"


# --- things of another kind, owner or mode


def _replaced(path: Path) -> None:
    path.rename(path.with_name("was-" + path.name))


def journal_is_a_fifo(case: Case) -> Expected:
    case.journal.unlink()
    os.mkfifo(case.journal)
    return "nothing"


def journal_is_a_directory(case: Case) -> Expected:
    case.journal.unlink()
    case.journal.mkdir()
    return "nothing"


def journal_is_a_symlink(case: Case) -> Expected:
    (case.outside / "journal").write_bytes(case.journal.read_bytes())
    case.journal.unlink()
    case.journal.symlink_to(case.outside / "journal")
    return "nothing"


def number_is_a_symlink(case: Case) -> Expected:
    tx = case.vault / "tx"
    (case.outside / "tx").write_bytes(tx.read_bytes())
    tx.unlink()
    tx.symlink_to(case.outside / "tx")
    return "nothing"


def number_is_a_hard_link(case: Case) -> Expected:
    tx = case.vault / "tx"
    tx.unlink()
    os.link(case.outside / "ignored.log", tx)
    return "nothing"


def entry_is_a_symlink(case: Case) -> Expected:
    _replaced(case.entry)
    case.entry.symlink_to("was-" + case.entry.name)
    return "nothing"


def entry_is_open_to_others(case: Case) -> Expected:
    case.entry.chmod(0o770)
    return "nothing"


def private_directory_is_open_to_others(case: Case) -> Expected:
    case.entry.parent.parent.chmod(0o755)
    return "nothing"


def the_way_there_is_open_to_others(case: Case) -> Expected:
    case.entry.parent.parent.parent.chmod(0o777)
    return "nothing"


def key_is_open_to_others(case: Case) -> Expected:
    (case.entry.parent.parent / KEY).chmod(0o644)
    return "nothing"


def key_is_cut_off(case: Case) -> Expected:
    (case.entry.parent.parent / KEY).write_bytes(b"short")
    return "nothing"


def key_is_a_symlink(case: Case) -> Expected:
    key = case.entry.parent.parent / KEY
    _replaced(key)
    key.symlink_to("was-key")
    return "nothing"


def entry_of_another_user(case: Case) -> Expected:
    if os.geteuid() != 0:
        return entry_is_open_to_others(case)
    os.chown(case.entry, 12345, 12345)
    return "nothing"


def key_of_another_user(case: Case) -> Expected:
    if os.geteuid() != 0:
        return key_is_open_to_others(case)
    os.chown(case.entry.parent.parent / KEY, 12345, 12345)
    return "nothing"


def vault_gone(case: Case) -> Expected:
    shutil.rmtree(case.vault)
    return "nothing"


def vault_swapped(case: Case) -> Expected:
    _replaced(case.vault)
    shutil.copytree(case.vault.with_name("was-" + case.vault.name), case.vault, symlinks=True)
    return "nothing"


def vault_is_a_symlink(case: Case) -> Expected:
    _replaced(case.vault)
    case.vault.symlink_to("was-" + case.vault.name)
    return "nothing"


def vault_is_open_to_others(case: Case) -> Expected:
    case.vault.chmod(0o755)
    return "nothing"


def image_is_another_file(case: Case) -> Expected:
    """What is in its place is not restored; the rest is undone."""
    image = next(path for path in case.vault.glob("image-*") if path.is_file())
    image.unlink()
    image.write_text("planted")
    case.before["a.txt"] = picture(case.root, exact=False)["a.txt"]
    return "undone"


# --- signed with our own key, and still never written by us


def _forged(name: str, *records: Record) -> Variant:
    def variant(case: Case) -> Expected:
        case.forge(Record("create", "new.txt", staged="stage-0123456789ab-0"), *records)
        return "nothing"

    variant.__name__ = f"forged {name}"
    return variant


_IMAGE = "image-0123456789ab-1"
_STAGED = "stage-0123456789ab-1"

FORGED: list[Variant] = [
    _forged("path above", Record("create", "../outside/a.txt", staged=_STAGED)),
    _forged("path above, later", Record("create", "d/../../outside/a.txt", staged=_STAGED)),
    _forged("absolute path", Record("create", "/etc/passwd", staged=_STAGED)),
    _forged("empty path", Record("create", "", staged=_STAGED)),
    _forged("the root", Record("delete", ".", image=_IMAGE)),
    _forged("empty part", Record("create", "d//one.txt", staged=_STAGED)),
    _forged("NUL", Record("create", "a\0b", staged=_STAGED)),
    _forged("target above", Record("move", "stolen", "../outside/a.txt", inode=1)),
    _forged("target without a move", Record("create", "a.txt", "b.txt", staged=_STAGED)),
    _forged("image above", Record("delete", "stolen", image="../../outside/a.txt")),
    _forged("image of another name", Record("delete", "stolen", image="tx")),
    _forged("no image", Record("delete", "stolen")),
    _forged("staged above", Record("create", "a.txt", staged="../../outside/a.txt")),
    _forged("times above", Record("create", "a.txt", staged=_STAGED, times=(("..", 0),))),
    _forged("unknown operation", Record("chmod", "a.txt", staged=_STAGED)),  # pyright: ignore[reportArgumentType]
    _forged("mode", Record("move", "a.txt", "b.txt", mode=0o170000)),
]


# --- the copy of `watch="scan"`


def _forge_manifest(case: Case, path: str, copy: str) -> None:
    log = case.entry / "mirror" / "manifest"
    data = log.read_bytes()
    found = read_header(case.keys, data)
    assert found is not None
    info = os.stat(case.outside / "a.txt")
    part, _ = frame(case.keys, found.mac, pack({path: entry(info, 0, copy=copy)}, ()))
    log.write_bytes(data[: found.end] + part)
    marker = case.entry / "mirror" / "open"
    opened = read_header(case.keys, marker.read_bytes())
    assert opened is not None
    marker.write_bytes(header(case.keys, opened.body.rstrip(), found.end + len(part))[0])


def manifest_with_an_absolute_copy(case: Case) -> Expected:
    _forge_manifest(case, "stolen", str(case.outside / "secret"))
    return "nothing"


def manifest_with_a_copy_above(case: Case) -> Expected:
    _forge_manifest(case, "stolen", "../journal")
    return "nothing"


def manifest_with_a_path_above(case: Case) -> Expected:
    _forge_manifest(case, "../outside/a.txt", "c1")
    return "nothing"


def manifest_of_another_root(case: Case) -> Expected:
    shutil.copy(case.other() / "mirror" / "manifest", case.entry / "mirror" / "manifest")
    return "nothing"


def manifest_marker_of_another_root(case: Case) -> Expected:
    shutil.copy(case.other() / "mirror" / "open", case.entry / "mirror" / "open")
    return "nothing"


def manifest_marker_of_an_earlier_time(case: Case) -> Expected:
    marker = case.entry / "mirror" / "open"
    data = marker.read_bytes()
    child = os.fork()  # closing would remove the mirror, so somebody has to end without that
    if child == 0:
        try:
            fs = HostFilesystem(case.root, watch="scan")
            fs.write("new.txt", "by the user")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert not marker.exists()
    assert marker.parent.exists()
    marker.write_bytes(data)
    return "nothing"


def manifest_damaged(case: Case) -> Expected:
    log = case.entry / "mirror" / "manifest"
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    return "nothing"


def manifest_as_it_was_left(case: Case) -> Expected:
    return "undone"


def as_it_was_left(case: Case) -> Expected:
    return "undone"


TAMPERED: list[Variant] = [
    journal_of_another_root, entry_of_another_root, journal_of_an_earlier_time,
    journal_of_an_earlier_time_in_an_open_transaction, journal_and_entry_of_an_earlier_time, root_copied,
    root_renamed, header_damaged, record_altered, records_swapped, first_record_left_out, statuses_damaged,
    floors_damaged, journal_of_zeros, description_damaged, description_missing, number_of_the_transaction_gone,
    key_replaced, journal_is_a_fifo, journal_is_a_directory, journal_is_a_symlink, number_is_a_symlink,
    number_is_a_hard_link, entry_is_a_symlink, entry_is_open_to_others, private_directory_is_open_to_others,
    the_way_there_is_open_to_others, key_is_open_to_others, key_is_cut_off, key_is_a_symlink, entry_of_another_user,
    key_of_another_user, image_is_another_file, manifest_with_an_absolute_copy, manifest_with_a_copy_above,
    manifest_with_a_path_above, manifest_of_another_root, manifest_marker_of_another_root,
    manifest_marker_of_an_earlier_time, manifest_damaged, manifest_as_it_was_left, as_it_was_left,
]  # fmt: skip

OWN_VAULT: list[Variant] = [vault_gone, vault_swapped, vault_is_a_symlink, vault_is_open_to_others]
"""Only where the vault is not the entry."""

VARIANTS: list[tuple[Variant, str]] = [
    *((variant, place) for variant in (*PLANTED, *TAMPERED, *FORGED) for place in ("private", "beside")),
    *((variant, "beside") for variant in OWN_VAULT),
]


def main(folder: str) -> None:
    """All variants as an ordinary user; prints those that failed."""
    if os.geteuid() == 0:
        os.chown(folder, 65534, 65534)
        os.setgid(65534)
        os.setgroups([])
        os.setuid(65534)
    logging.disable()
    failed: list[str] = []
    for variant, place in VARIANTS:
        try:
            run(variant, Path(mkdtemp(dir=folder)), place)
        except Exception as error:
            failed.append(f"{variant.__name__}, {place}: {error!r:.300}")
    sys.stdout.write("\n".join([f"{len(VARIANTS)} variants, {len(failed)} failed", *failed]) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
