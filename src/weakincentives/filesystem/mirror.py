"""A copy of the root's content, kept in the state directory, and the way back to it.

A hard link would not do here: other programs write in place, and the link would change with them.

`mirror/` holds one file for each regular file of the root, `manifest` (an append-only list of steps, so that any
older state can be read back) and, while a transaction is open, `open` with the length of the manifest at its start.
"""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from struct import Struct
from typing import Final, final
from zlib import crc32

from ..errors import JournalError
from .confine import Handle
from .differences import summary
from .disk import Disk
from .manifest import Entry, Manifest, Scan, entry, pack, unpack
from .paths import ROOT, is_below, split
from .protocol import FileChanges
from .staging import CHUNK, READ
from .state_dir import MARKER, MIRROR
from .syscalls import DIRECTORY, write_all

_LOG: Final = "manifest"
_HEAD: Final = Struct(">II")
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL


@final
class Mirror:
    """The copy of one root. Its caller holds the disk's lock."""

    __slots__ = ("_count", "_disk", "_end", "_fd", "_sys", "manifest")

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._sys = disk.sys
        self._fd = -1
        self._end = 0
        self._count = 0
        self.manifest: Manifest = {}

    # --- keeping

    def refresh(self) -> Manifest:
        """Bring the copy up to date; what did not change is not read."""
        self._open()
        self._advance(Scan(self._disk, self.manifest, self._describe).run())
        return self.manifest

    @property
    def length(self) -> int:
        """Of the manifest's file: it stands for the state of now."""
        return self._end

    def begin(self, length: int) -> None:
        """From here on, a crash is followed by going back to the state which that length stands for."""
        self._write_file("open", str(length).encode())

    def commit(self) -> None:
        """The state of now is final; copies that nothing needs any more are removed."""
        self._sys.unlink("open", dir_fd=self._fd)
        with suppress(OSError):  # room for the next time, nothing more
            self._compact()
            self._sweep()

    def close(self) -> None:
        """Give the descriptor back; the copy stays for the next time."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            with suppress(OSError):
                self._sys.close(fd)

    def _describe(self, path: str, at: int, name: str, info: os.stat_result, known: Entry | None) -> Entry:
        """The entry, with a copy of the content made now, unless the one there is turns out to be the same."""
        for _ in range(5):
            now = time.time_ns()
            xattrs = self._xattrs(name, at, info)
            if not stat.S_ISREG(info.st_mode):
                copy = self._sys.readlink(name, dir_fd=at) if stat.S_ISLNK(info.st_mode) else ""
                return entry(info, now, copy=copy, xattrs=xattrs)
            try:
                fd = self._sys.open(name, READ, dir_fd=at)
            except PermissionError:
                return entry(info, now, xattrs=xattrs, opaque=True)
            with Handle(self._sys, fd):
                if known is not None and known.copy and self._matches(fd, known):
                    copy = known.copy
                else:
                    copy = self._copy_from(fd)
                after = self._sys.fstat(fd)
            if entry(after, now).same(info):
                return entry(info, now, copy=copy, xattrs=xattrs)
            info = self._sys.stat(name, dir_fd=at)
        raise JournalError(f"{path!a} changes all the time, so no copy can be made; stop what writes it.")

    def _look(self, _path: str, at: int, name: str, info: os.stat_result, known: Entry | None) -> Entry:
        """The entry without a copy: what has none differs from all that has one."""
        if known is not None and known.copy and stat.S_ISREG(info.st_mode) and known.same(info):
            with suppress(PermissionError), Handle(self._sys, self._sys.open(name, READ, dir_fd=at)) as fd:
                if self._matches(fd, known):
                    return known
        copy = self._sys.readlink(name, dir_fd=at) if stat.S_ISLNK(info.st_mode) else ""
        return entry(info, time.time_ns(), copy=copy, xattrs=self._xattrs(name, at, info))

    def _xattrs(self, name: str, at: int, info: os.stat_result) -> tuple[tuple[str, str], ...]:
        if stat.S_ISLNK(info.st_mode):
            return ()
        return tuple(sorted((key, value.hex()) for key, value in self._sys.xattrs(name, dir_fd=at).items()))

    def _copy_from(self, source: int) -> str:
        self._count += 1
        copy = f"c{self._count}"
        fd = self._sys.open(copy, _CREATE, 0o600, dir_fd=self._fd)
        with Handle(self._sys, fd):
            while chunk := self._sys.read(source, CHUNK):
                write_all(self._sys, fd, chunk)
        return copy

    def _matches(self, fd: int, known: Entry) -> bool:
        if self._sys.fstat(fd).st_size != known.size:
            return False
        with suppress(FileNotFoundError), Handle(self._sys, self._sys.open(known.copy, READ, dir_fd=self._fd)) as copy:
            at = 0
            while chunk := self._sys.pread(fd, CHUNK, at):
                if self._sys.pread(copy, len(chunk), at) != chunk:
                    return False
                at += len(chunk)
            return True
        return False

    # --- the manifest's file

    def _open(self) -> None:
        if self._fd >= 0:
            return
        state = self._disk.state.fd
        with suppress(FileExistsError):
            self._sys.mkdir(MIRROR, 0o700, dir_fd=state)
        self._fd = self._sys.open(MIRROR, DIRECTORY, dir_fd=state)
        self.manifest = self._load(None)
        self._compact()
        self._sweep()

    def _load(self, limit: int | None) -> Manifest:
        manifest: Manifest = {}
        data = self._read_file(_LOG)[:limit]
        self._end = 0
        while self._end + _HEAD.size <= len(data):
            length, checksum = _HEAD.unpack_from(data, self._end)
            body = data[self._end + _HEAD.size : self._end + _HEAD.size + length]
            if len(body) != length or length == 0 or crc32(body) != checksum:
                break
            unpack(manifest, body)
            self._end += _HEAD.size + length
        return manifest

    def _advance(self, manifest: Manifest) -> None:
        changed = {path: e for path, e in manifest.items() if self.manifest.get(path) is not e}
        removed = [path for path in self.manifest if path not in manifest]
        if changed or removed:
            data = _framed(pack(changed, removed))
            fd = self._sys.open(_LOG, os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=self._fd)
            with Handle(self._sys, fd):
                done = 0
                while done < len(data):
                    done += self._sys.pwrite(fd, data[done:], self._end + done)
            self._end += len(data)
        self.manifest = manifest

    def _compact(self) -> None:
        """Write the manifest as one step when its file has grown far beyond that."""
        if self._end > max(1_000_000, 600 * len(self.manifest)):
            data = _framed(pack(self.manifest, ()))
            self._write_file(_LOG, data)
            self._end = len(data)

    def _sweep(self) -> None:
        needed = {e.copy for e in self.manifest.values()}
        for name in self._sys.names(self._fd):
            if name[:1] == "c" and name[1:].isdigit():
                self._count = max(self._count, int(name[1:]))
                if name not in needed:
                    with suppress(OSError):
                        self._sys.unlink(name, dir_fd=self._fd)

    def _write_file(self, name: str, data: bytes) -> None:
        staged = self._disk.state.new_name("stage")
        state = self._disk.state.fd
        with Handle(self._sys, self._sys.open(staged, _CREATE, 0o600, dir_fd=state)) as fd:
            write_all(self._sys, fd, data)
        self._sys.rename(staged, name, source_fd=state, target_fd=self._fd)

    def _read_file(self, name: str) -> bytes:
        data = b""
        with suppress(FileNotFoundError), Handle(self._sys, self._sys.open(name, READ, dir_fd=self._fd)) as fd:
            while piece := self._sys.read(fd, CHUNK):
                data += piece
        return data

    # --- going back

    def recover(self) -> bool:
        """Go back to the start of a transaction that was left open; False when there is none."""
        state = self._disk.state.fd
        try:
            self._sys.stat(MARKER, dir_fd=state)
        except (FileNotFoundError, NotADirectoryError):
            return False
        self.close()
        self._fd = self._sys.open(MIRROR, DIRECTORY, dir_fd=state)
        limit = int(self._read_file("open") or b"0")
        self.manifest = self._load(None)
        end = self._end
        wanted = self._load(limit)
        self._end = end
        self._sweep_count()
        self.restore(wanted)
        self.commit()
        return True

    def _sweep_count(self) -> None:
        numbers = [int(name[1:]) for name in self._sys.names(self._fd) if name[:1] == "c" and name[1:].isdigit()]
        self._count = max(numbers, default=0)

    def restore(self, wanted: Manifest) -> None:
        """Make the root what it was, whoever changed it."""
        current = Scan(self._disk, self.manifest, self._look, opened=wanted).run()
        restored = Restoration(self._disk, self._fd, current, wanted).run()

        def describe(path: str, at: int, name: str, info: os.stat_result, known: Entry | None) -> Entry:
            was = restored.get(path)
            if was is not None and (was.mode, was.mtime) == (info.st_mode, info.st_mtime_ns):
                return entry(info, time.time_ns(), copy=was.copy, xattrs=was.xattrs, opaque=was.opaque)
            return self._describe(path, at, name, info, known)

        self._advance(Scan(self._disk, self.manifest, describe).run())

    def changes(self, since: Manifest) -> FileChanges:
        """What differs from then, whoever changed it."""
        current = Scan(self._disk, self.manifest, self._look).run()
        added = [_shown(path, e) for path, e in current.items() if path not in since]
        removed = [_shown(path, e) for path, e in since.items() if path not in current]
        changed: list[str] = []
        for path, old in since.items():
            new = current.get(path)
            if new is None or new is old or path == ROOT:
                continue
            if stat.S_IFMT(new.mode) != stat.S_IFMT(old.mode):
                removed.append(_shown(path, old))
                added.append(_shown(path, new))
            elif new.mode != old.mode or not self._same_content(path, old, new):
                changed.append(_shown(path, new))
        return summary(added, changed, removed)

    def _same_content(self, path: str, old: Entry, new: Entry) -> bool:
        if stat.S_ISLNK(old.mode):
            return old.copy == new.copy
        if not stat.S_ISREG(old.mode) or (old.copy and old.copy == new.copy):
            return True
        try:
            with Handle(self._sys, self._disk.dirs.open(path, READ)) as fd:
                return self._matches(fd, old)
        except OSError:
            return False


@final
class Restoration:
    """One way back: from what is there now to what is wanted."""

    __slots__ = ("_copies", "_current", "_disk", "_failed", "_restored", "_sys", "_touched", "_trash", "_wanted")

    def __init__(self, disk: Disk, copies: int, current: Manifest, wanted: Manifest) -> None:
        self._disk = disk
        self._sys = disk.sys
        self._copies = copies
        self._current = current
        self._wanted = wanted
        self._touched: set[str] = set()
        self._trash: list[str] = []
        self._failed: list[str] = []
        self._restored: Manifest = {}

    def run(self) -> Manifest:
        """What had to be put back; `JournalError` names what could not be, after all else was."""
        self._clear()
        for path in sorted(self._wanted):
            self._bring_back(path, self._wanted[path])
        for path in sorted(self._wanted, reverse=True):
            if stat.S_ISDIR(self._wanted[path].mode):
                self._dress(path, self._wanted[path])
        for name in self._trash:
            self._disk.state.purge(name)
        if self._failed:
            shown = ", ".join(ascii(path) for path in self._failed[:5])
            raise JournalError(
                f"{len(self._failed)} path(s) in {self._disk.root} could not be put back, among them {shown}: "
                "they could not be read before, or are sockets or devices."
            )
        return self._restored

    def _clear(self) -> None:
        """Take away what was not there, and what is now of another kind; whole trees at once."""
        gone = "\0"
        for path in sorted(self._current, key=lambda path: path.split("/")):
            if is_below(path, gone) or self._hidden(path):
                self._current.pop(path)
                continue
            wanted = self._wanted.get(path)
            if wanted is None or stat.S_IFMT(wanted.mode) != stat.S_IFMT(self._current[path].mode):
                self._remove(path)
                self._current.pop(path)
                gone = path

    def _hidden(self, path: str) -> bool:
        """Whether it is in a directory whose content was never known."""
        while path != ROOT:
            path = split(path)[0]
            if (found := self._wanted.get(path)) is not None and found.opaque:
                return True
        return False

    def _remove(self, path: str) -> None:
        parent, name = self._parent(path)
        trash = self._disk.state.new_name("trash")
        with parent as at:
            try:
                self._sys.rename(name, trash, source_fd=at, target_fd=self._disk.state.fd)
            except PermissionError:
                self._sys.chmod(name, 0o700, dir_fd=at)
                self._sys.rename(name, trash, source_fd=at, target_fd=self._disk.state.fd)
        self._trash.append(trash)

    def _parent(self, path: str) -> tuple[Handle, str]:
        """The parent's handle, writable; its mode and time are set right at the end."""
        above = split(path)[0]
        handle, name = self._disk.dirs.parent(path)
        if above not in self._touched:
            self._touched.add(above)
            if os.geteuid() != 0 and self._sys.fstat(handle.fd).st_mode & 0o700 != 0o700 and above != ROOT:
                upper, upper_name = self._disk.dirs.parent(above)
                with upper as at:
                    self._sys.chmod(upper_name, 0o700, dir_fd=at)
        return handle, name

    def _bring_back(self, path: str, wanted: Entry) -> None:
        current = self._current.get(path)
        if path == ROOT or (current is not None and current.like(wanted)):
            return
        if stat.S_ISDIR(wanted.mode):
            if current is None:
                parent, name = self._parent(path)
                with parent as at:
                    self._sys.mkdir(name, 0o700, dir_fd=at)
            self._touched.add(path)
            return
        if wanted.opaque or not (stat.S_ISREG(wanted.mode) or stat.S_ISLNK(wanted.mode) or stat.S_ISFIFO(wanted.mode)):
            if current is None or current.size != wanted.size or current.mtime != wanted.mtime:
                self._failed.append(path)
            return
        staged = self._disk.state.new_name("stage")
        self._stage(staged, wanted)
        parent, name = self._parent(path)
        with parent as at:
            self._sys.rename(staged, name, source_fd=self._disk.state.fd, target_fd=at)
        self._restored[path] = wanted

    def _stage(self, staged: str, wanted: Entry) -> None:
        state = self._disk.state.fd
        if stat.S_ISLNK(wanted.mode):
            self._sys.symlink(wanted.copy, staged, dir_fd=state)
        elif stat.S_ISFIFO(wanted.mode):
            self._sys.mkfifo(staged, 0o600, dir_fd=state)
        else:
            with (
                Handle(self._sys, self._sys.open(wanted.copy, READ, dir_fd=self._copies)) as source,
                Handle(self._sys, self._sys.open(staged, _CREATE, 0o600, dir_fd=state)) as fd,
            ):
                while chunk := self._sys.read(source, CHUNK):
                    write_all(self._sys, fd, chunk)
                self._set_xattrs(fd, wanted)
        self._set_attributes(staged, state, wanted)

    def _dress(self, path: str, wanted: Entry) -> None:
        """Give a directory its mode, owner, attributes and time again."""
        current = self._current.get(path)
        if path not in self._touched and current is not None and current.like(wanted):
            return
        parent, name = self._disk.dirs.parent(path)  # of the root: itself, and "."
        with parent as at:
            if path != ROOT and (current is None or current.xattrs != wanted.xattrs):
                with Handle(self._sys, self._sys.open(name, DIRECTORY, dir_fd=at)) as fd:
                    self._set_xattrs(fd, wanted)
                    for key in {key for key, _ in (current.xattrs if current else ())} - {k for k, _ in wanted.xattrs}:
                        with suppress(OSError):
                            self._sys.removexattr(fd, key)
            self._set_attributes(name, at, wanted)

    def _set_attributes(self, name: str, at: int, wanted: Entry) -> None:
        found = self._sys.stat(name, dir_fd=at)
        if (found.st_uid, found.st_gid) != (wanted.uid, wanted.gid):
            with suppress(PermissionError):
                self._sys.chown(name, wanted.uid, wanted.gid, dir_fd=at)
        if not stat.S_ISLNK(wanted.mode):
            self._sys.chmod(name, stat.S_IMODE(wanted.mode), dir_fd=at)
        self._sys.utime(name, (found.st_atime_ns, wanted.mtime), dir_fd=at)

    def _set_xattrs(self, fd: int, wanted: Entry) -> None:
        for key, value in wanted.xattrs:
            with suppress(OSError):
                self._sys.setxattr(fd, key, bytes.fromhex(value))


def _framed(body: bytes) -> bytes:
    return _HEAD.pack(len(body), crc32(body)) + body


def _shown(path: str, found: Entry) -> str:
    return f"{path}/" if stat.S_ISDIR(found.mode) else path


__all__ = ["Mirror"]
