"""A copy of the root's content, kept in the vault, from which the root can be restored.

A hard link would not do here: other programs write in place, and the link would change with them.

`mirror/` in the vault holds one file for each regular file of the root. `mirror/` in the entry holds `manifest` (an
append-only list of steps, so that any older state can be read back) and, while there are snapshots, `open`: the length
of the manifest that a crash is rolled back to, or that there is none. It is changed in place, as an undo must not take
room on the disk. Both are authenticated like the journal; a manifest that is not ours is made anew.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final, final

from ...errors import JournalError
from ...fence import check_wanted
from ..paths import ROOT
from ..protocol import LARGE, FileChanges, FileNode, LargeFile
from .confine import Handle
from .copies import Copies, copy_file
from .disk_root import DiskRoot
from .journal import (
    Header,
    RejectedError,
    check_header,
    frame,
    frames,
    header,
    header_body,
    read_header,
    slot,
    slot_offset,
)
from .manifest import Manifest, ManifestEntry, TreeScan, differences, entry, pack, unpack
from .restoration import Restoration
from .reversal import summary
from .state_dir import IDLE, MARKER, MIRROR, StateDir
from .syscalls import CHUNK, CREATE, DIRECTORY, READ, look, pwrite_all, read_all, read_part, write_all

_LOG: Final = "manifest"
_OPEN: Final = "open"
_NOTHING: Final = (1 << 64) - 1
_VERSION: Final = "wink-manifest-2"
_OPEN_VERSION: Final = "wink-open-2"
_PART: Final = "mirror"


@final
class Mirror:
    """The copy of one root. Its caller holds the disk's lock."""

    __slots__ = ("_copies", "_disk", "_end", "_fd", "_loaded", "_mac", "_marker", "_of", "_seen", "_sys", "manifest")

    def __init__(self, disk: DiskRoot, max_copied_bytes: int | None = None) -> None:
        self._disk = disk
        self._sys = disk.sys
        self._fd = -1
        self._copies = Copies(disk, max_copied_bytes)  # in the same directory where the vault is the entry
        self._loaded = False
        self._of: StateDir | None = None
        self._end = 0
        self._mac = b""  # of the manifest's last frame
        self._seen: tuple[int, int] | None = None
        self._marker: Header | None = None
        self.manifest: Manifest = {}

    # --- keeping

    def refresh(self) -> Manifest:
        """Bring the copy up to date; what did not change is not read."""
        self._open()
        # Copies are complete before the manifest names them; those that a crash leaves behind go with the next sweep.
        self._copies.begin_walk()
        try:
            found = TreeScan(self._disk, self.manifest, self._describe).run()
        finally:
            self._copies.end_walk()
        self._advance(found)
        return self.manifest

    @property
    def length(self) -> int:
        """Of the manifest's file: it stands for the state of now."""
        return self._end

    def begin(self, length: int | None) -> None:
        """From here on a crash is rolled back to the state that the length stands for; None: it is not rolled back."""
        state, floor = self._disk.state, _NOTHING if length is None else length
        fd = -1
        with suppress(FileNotFoundError):
            fd = self._sys.open(_OPEN, os.O_WRONLY, dir_fd=self._fd)
        if fd < 0 or self._marker is None:
            with Handle(self._sys, fd, owned=fd >= 0):
                content, marker = header(
                    state.keys, header_body(_OPEN_VERSION, state.binding, state.begin(_PART)), floor
                )
                self._write_file(_OPEN, content)
                self._marker = marker
            return
        with Handle(self._sys, fd):
            # Into the older of the two slots: if the write is torn, the newer one still stands.
            sequence = self._marker.sequence + 1
            self._sys.pwrite(fd, slot(state.keys, self._marker, sequence, floor), slot_offset(self._marker, sequence))
            self._marker = self._marker._replace(sequence=sequence)

    def node(self, manifest: Manifest, path: str) -> FileNode | None:
        """What was at the path when the manifest was made; `JournalError` when its content was not copied."""
        known = manifest.get(path)
        if known is None:
            return None
        mode = stat.S_IMODE(known.mode)
        if stat.S_ISLNK(known.mode):
            return FileNode("symlink", mode, os.fsencode(known.copy))
        if stat.S_ISDIR(known.mode):
            return FileNode("directory", mode)
        if not stat.S_ISREG(known.mode):
            return FileNode("other", mode)
        if known.opaque:
            raise JournalError(f"{path!a} in {self._disk.root} was not copied, so what it held is not known.")
        offset = known.copy.partition("+")[2]
        with Handle(self._sys, self._sys.open(copy_file(known), READ, dir_fd=self._copies.fd)) as fd:
            content = read_part(self._sys, fd, known.size, int(offset or 0))
        if len(content) != known.size:
            raise JournalError(f"The copy of {path!a} in {self._disk.root} was cut, so what it held is not known.")
        return FileNode("file", mode, content)

    def large(self, manifest: Manifest, path: str) -> LargeFile | None:
        """The large file that was at the path when the manifest was made."""
        known = manifest.get(path)
        if known is None or not stat.S_ISREG(known.mode) or known.size <= LARGE or known.opaque:
            return None
        return LargeFile(stat.S_IMODE(known.mode), known.size, lambda: self._copied(known))

    def _copied(self, known: ManifestEntry) -> Iterator[bytes]:
        with Handle(self._sys, self._sys.open(copy_file(known), READ, dir_fd=self._copies.fd)) as fd:
            while piece := self._sys.read(fd, CHUNK):  # a large one has a file of its own
                yield piece

    def commit(self) -> None:
        """The state of now is final; copies that nothing needs any more are removed. Calling it twice is fine."""
        with suppress(FileNotFoundError):
            self._sys.unlink(_OPEN, dir_fd=self._fd)
        self._marker = None
        self._disk.state.end(_PART)
        with suppress(OSError):  # room for the next time, nothing more
            worn = self._copies.worn(self.manifest)
            if worn:  # what is needed of them is copied again by the next walk, which finds it missing
                self._advance({path: e for path, e in self.manifest.items() if copy_file(e) not in worn})
            self._compact()
            self._copies.drop_unsure(self.manifest)

    def close(self) -> None:
        """Close the descriptors; the copy stays until the root is closed."""
        self._loaded = False
        fds = {self._fd, self._copies.fd} - {-1}
        self._fd = self._copies.fd = -1
        for fd in fds:
            with suppress(OSError):
                self._sys.close(fd)

    def _describe(
        self, path: str, at: int, name: str, info: os.stat_result, known: ManifestEntry | None
    ) -> ManifestEntry:
        """The entry, with a copy of the content made now, unless the one there is turns out to be the same."""
        for _ in range(5):
            now = time.time_ns()
            if not stat.S_ISREG(info.st_mode):
                copy = self._sys.readlink(name, dir_fd=at) if stat.S_ISLNK(info.st_mode) else ""
                return entry(info, now, copy=copy, xattrs=self._xattrs(name, at, info))
            if self._copies.leave_out(path, info):
                return entry(info, now, xattrs=self._xattrs(name, at, info), opaque=True)
            try:
                fd = self._sys.open(name, READ, dir_fd=at)
            except PermissionError:
                return entry(info, now, xattrs=self._xattrs(name, at, info), opaque=True)
            with Handle(self._sys, fd):
                if known is not None and self._copies.matches(fd, known, check_wanted):
                    copy = known.copy
                else:
                    copy = self._copies.make(fd, check_wanted)
                described = entry(info, now, copy=copy, xattrs=_shown_xattrs(self._sys.fxattrs(fd)))
                after = self._sys.fstat(fd)
            if described.same(after):
                return described
            info = self._sys.stat(name, dir_fd=at)
        raise JournalError(f"{path!a} changes all the time, so no copy can be made; stop what writes it.")

    def _look(self, _path: str, at: int, name: str, info: os.stat_result, known: ManifestEntry | None) -> ManifestEntry:
        """The entry without a copy: what has none differs from all that has one."""
        if known is not None and known.copy and stat.S_ISREG(info.st_mode) and known.same(info):
            with suppress(PermissionError), Handle(self._sys, self._sys.open(name, READ, dir_fd=at)) as fd:
                if self._copies.matches(fd, known):
                    return known
        copy = self._sys.readlink(name, dir_fd=at) if stat.S_ISLNK(info.st_mode) else ""
        return entry(info, time.time_ns(), copy=copy, xattrs=self._xattrs(name, at, info))

    def _xattrs(self, name: str, at: int, info: os.stat_result) -> tuple[tuple[str, str], ...]:
        if stat.S_ISLNK(info.st_mode):
            return ()
        return _shown_xattrs(self._sys.xattrs(name, dir_fd=at))

    # --- the manifest's file

    def _open(self) -> None:
        if self._of is not self._disk.state:  # `wink state` removed the other one while this root was idle
            self.close()
        # While there are snapshots the root is ours; before, another process or object may have worked in it.
        if self._loaded and (self._marker is not None or self._seen == self._log_identity()):
            return
        self._loaded = False
        if self._fd < 0:
            self._open_directories()
        try:
            self.manifest = self._load(None)
        except RejectedError:  # nothing depends on it: it is made anew
            self._sys.unlink(_LOG, dir_fd=self._fd)
            self.manifest = self._load(None)
        self._compact()
        self._copies.sweep(self.manifest)
        self._seen = self._log_identity()
        self._loaded = True  # last: an interrupt before is followed by loading it again

    def _log_identity(self) -> tuple[int, int] | None:
        """What tells the manifest's file from one that was written to since: it only grows, or is replaced."""
        found = look(self._sys, _LOG, self._fd)
        return None if found is None else (found.st_ino, found.st_size)

    def _open_directories(self) -> None:
        state = self._of = self._disk.state
        for fd in (state.entry, state.fd):
            with suppress(FileExistsError):
                self._sys.mkdir(MIRROR, 0o700, dir_fd=fd)
        self._fd = self._copies.fd = self._sys.open(MIRROR, DIRECTORY, dir_fd=state.entry)
        if state.fd != state.entry:
            self._copies.fd = -1
            self._copies.fd = self._sys.open(MIRROR, DIRECTORY, dir_fd=state.fd)

    def _load(self, limit: int | None) -> Manifest:
        """The manifest as of that length, or of now. Raises `RejectedError` for one that is not ours."""
        manifest: Manifest = {}
        data = self._read_file(_LOG)[:limit]
        keys = self._disk.state.keys
        self._end, self._mac = 0, b""
        found = read_header(keys, data)
        if found is not None:
            check_header(found, self._header_body())
            self._end, self._mac = found.end, found.mac
            for part in frames(keys, data, found.end, found.mac):
                unpack(manifest, part.body)
                self._end, self._mac = part.end, part.seal
        return manifest

    def _header_body(self) -> bytes:
        return header_body(_VERSION, self._disk.state.binding, IDLE)

    def _packed(self, changed: Manifest, removed: list[str], *, first: bool) -> tuple[bytes, bytes]:
        """A step as it stands in the file, behind a header if it is the first; and its MAC."""
        keys = self._disk.state.keys
        start, before = b"", self._mac
        if first:
            start, of = header(keys, self._header_body(), 0)
            before = of.mac
        data, mac = frame(keys, before, pack(changed, removed))
        return start + data, mac

    def _advance(self, manifest: Manifest) -> None:
        changed, removed = differences(self.manifest, manifest)
        if changed or removed:
            self._copies.unsure.update(
                copy_file(self.manifest[path]) for path in (*changed, *removed) if path in self.manifest
            )
            data, mac = self._packed(changed, removed, first=self._end == 0)
            fd = self._sys.open(_LOG, os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=self._fd)
            with Handle(self._sys, fd):
                pwrite_all(self._sys, fd, data, self._end)
            self._end += len(data)
            self._mac = mac
            self._seen = self._log_identity()
        self.manifest = manifest

    def _compact(self) -> None:
        """Write the manifest as one step when its file has grown far beyond that."""
        if self._end > max(1_000_000, 600 * len(self.manifest)):
            data, mac = self._packed(self.manifest, [], first=True)
            self._write_file(_LOG, data)
            self._end, self._mac = len(data), mac
            self._seen = self._log_identity()

    def _write_file(self, name: str, data: bytes) -> None:
        staged = self._disk.state.new_name("stage")
        entry = self._disk.state.entry
        try:
            with Handle(self._sys, self._sys.open(staged, CREATE, 0o600, dir_fd=entry)) as fd:
                write_all(self._sys, fd, data)
            self._sys.rename(staged, name, source_fd=entry, target_fd=self._fd)
        except BaseException:
            with suppress(OSError):
                self._sys.unlink(staged, dir_fd=entry)
            raise

    def _read_file(self, name: str) -> bytes:
        with suppress(FileNotFoundError), Handle(self._sys, self._sys.open(name, READ, dir_fd=self._fd)) as fd:
            return read_all(self._sys, fd)
        return b""

    # --- restoring

    def recover(self) -> list[str] | None:
        """Undo a transaction that was left open; None when there is none.

        Else the paths that could not be restored, after all others were.
        """
        state = self._disk.state
        if not state.watched():
            return None
        self.close()
        self._open_directories()
        try:
            wanted = self._load_wanted()
        except RejectedError as reason:
            state.reject(MARKER, reason)
            state.end(_PART)
            self.manifest = {}
            self.close()
            return None
        if wanted is None:
            self.commit()
            return None
        self._copies.recount()
        failed = self.restore(wanted)
        self.commit()
        with suppress(OSError):
            self._copies.sweep(self.manifest)
        return failed

    def _load_wanted(self) -> Manifest | None:
        """Load the manifest; the one that a crash is rolled back to, or None. Raises `RejectedError`."""
        limit = self._limit()
        self.manifest = self._load(None)
        if limit == _NOTHING:
            return None
        end, mac = self._end, self._mac
        wanted = self._load(limit)
        if self._end != limit:
            raise RejectedError("the list of copies is not as long as it says")
        self._end, self._mac = end, mac
        return wanted

    def _limit(self) -> int:
        """What the marker says. It has its name only when it is whole, so one that is cut off is not ours."""
        state = self._disk.state
        found = read_header(state.keys, self._read_file(_OPEN))
        if found is None:
            raise RejectedError("it is damaged")
        check_header(found, header_body(_OPEN_VERSION, state.binding, state.transaction))
        return found.floor

    def look(self, wanted: Manifest | None = None) -> Manifest:
        """What is in the root now, by one walk; to restore `wanted`, directories that are closed to us are opened."""
        return TreeScan(self._disk, self.manifest, self._look, opened=wanted).run()

    def restore(self, wanted: Manifest, current: Manifest | None = None) -> list[str]:
        """Make the root what it was; the paths that could not be restored, after all others were.

        `current` is what `look(wanted)` has just returned.
        """
        current = dict(self.look(wanted) if current is None else current)  # it is worked on
        known, failed = Restoration(self._disk, self._copies.fd, current, wanted).run()
        with suppress(OSError):  # time saved for the next snapshot, which looks for itself where this found no room
            self._advance(known)
        return failed

    def changes(self, since: Manifest, current: Manifest) -> FileChanges:
        """What differs between then and now, no matter which program changed it."""
        differing, gone = differences(since, current)
        added = list[str]()
        changed = list[str]()
        removed = [_shown(path, since[path]) for path in gone]
        for path, new in differing.items():
            old = since.get(path)
            if old is None:
                added.append(_shown(path, new))
            elif path == ROOT:
                continue
            elif stat.S_IFMT(new.mode) != stat.S_IFMT(old.mode):
                removed.append(_shown(path, old))
                added.append(_shown(path, new))
            elif new.mode != old.mode or not self._same_content(path, old, new):
                changed.append(_shown(path, new))
        return summary(added, changed, removed)

    def _same_content(self, path: str, old: ManifestEntry, new: ManifestEntry) -> bool:
        if stat.S_ISLNK(old.mode):
            return old.copy == new.copy
        if old.opaque:
            return old.untouched(new)
        if not stat.S_ISREG(old.mode) or (old.copy and old.copy == new.copy):
            return True
        try:
            with Handle(self._sys, self._disk.dirs.open(path, READ)) as fd:
                return self._copies.matches(fd, old)
        except OSError:
            return False


def _shown_xattrs(found: dict[str, bytes]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((key, value.hex()) for key, value in found.items()))


def _shown(path: str, found: ManifestEntry) -> str:
    return f"{path}/" if stat.S_ISDIR(found.mode) else path


def refuse_incomplete(disk: DiskRoot, paths: Sequence[str]) -> None:
    """Raise `JournalError` that names what could not be restored, if there is any; trying again would not help."""
    if paths:
        shown = ", ".join(ascii(path) for path in paths[:5])
        raise JournalError(
            f"{len(paths)} path(s) in {disk.root} could not be restored, among them {shown}: "
            "they could not be read before, were larger than max_copied_bytes=, or are sockets or devices. "
            "All others were."
        )
