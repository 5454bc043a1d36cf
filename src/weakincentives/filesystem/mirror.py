"""A copy of the root's content, kept in the state directory, and the way back to it.

A hard link would not do here: other programs write in place, and the link would change with them.

`mirror/` holds one file for each regular file of the root, `manifest` (an append-only list of steps, so that any
older state can be read back) and, while there are snapshots, `open`: the length of the manifest that a crash goes back
to, or that there is none. It is changed in place, as going back must not take room on the disk.
"""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from typing import Final, final

from ..errors import JournalError
from .confine import Handle
from .differences import summary
from .disk import Disk
from .frames import floor_of, frame, frames, header
from .manifest import Entry, Manifest, Scan, entry, pack, unpack
from .paths import ROOT
from .protocol import FileChanges
from .restoration import Restoration
from .staging import CHUNK, READ
from .state_dir import MARKER, MIRROR
from .syscalls import DIRECTORY, write_all

_LOG: Final = "manifest"
_OPEN: Final = "open"
_NOTHING: Final = (1 << 64) - 1
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL


@final
class Mirror:
    """The copy of one root. Its caller holds the disk's lock."""

    __slots__ = ("_count", "_disk", "_end", "_fd", "_loaded", "_sys", "manifest")

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._sys = disk.sys
        self._fd = -1
        self._loaded = False
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

    def begin(self, length: int | None) -> None:
        """From here on a crash goes back to the state which that length stands for; None: it goes back to nothing."""
        content = header(_NOTHING if length is None else length)
        try:
            fd = self._sys.open(_OPEN, os.O_WRONLY, dir_fd=self._fd)
        except FileNotFoundError:
            self._write_file(_OPEN, content)
            return
        with Handle(self._sys, fd):
            self._sys.pwrite(fd, content, 0)

    def commit(self) -> None:
        """The state of now is final; copies that nothing needs any more are removed. Twice is fine."""
        with suppress(FileNotFoundError):
            self._sys.unlink(_OPEN, dir_fd=self._fd)
        with suppress(OSError):  # room for the next time, nothing more
            self._compact()
            self._sweep()

    def close(self) -> None:
        """Give the descriptor back; the copy stays for the next time."""
        self._loaded = False
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
        if self._loaded:
            return
        if self._fd < 0:
            state = self._disk.state.fd
            with suppress(FileExistsError):
                self._sys.mkdir(MIRROR, 0o700, dir_fd=state)
            self._fd = self._sys.open(MIRROR, DIRECTORY, dir_fd=state)
        self.manifest = self._load(None)
        self._compact()
        self._sweep()
        self._loaded = True  # last: an interrupt before is followed by loading it again

    def _load(self, limit: int | None) -> Manifest:
        manifest: Manifest = {}
        data = self._read_file(_LOG)[:limit]
        self._end = 0
        for part in frames(data, 0):
            unpack(manifest, part.body)
            self._end = part.end
        return manifest

    def _advance(self, manifest: Manifest) -> None:
        changed = {path: e for path, e in manifest.items() if self.manifest.get(path) is not e}
        removed = [path for path in self.manifest if path not in manifest]
        if changed or removed:
            data = frame(pack(changed, removed))
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
            data = frame(pack(self.manifest, ()))
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
        try:
            with Handle(self._sys, self._sys.open(staged, _CREATE, 0o600, dir_fd=state)) as fd:
                write_all(self._sys, fd, data)
            self._sys.rename(staged, name, source_fd=state, target_fd=self._fd)
        except BaseException:
            self._disk.state.purge(staged)
            raise

    def _read_file(self, name: str) -> bytes:
        data = b""
        with suppress(FileNotFoundError), Handle(self._sys, self._sys.open(name, READ, dir_fd=self._fd)) as fd:
            while piece := self._sys.read(fd, CHUNK):
                data += piece
        return data

    # --- going back

    def recover(self) -> list[str] | None:
        """Go back to the start of a transaction that was left open; None when there is none.

        Else the paths that could not be put back, after all others were.
        """
        state = self._disk.state.fd
        try:
            self._sys.stat(MARKER, dir_fd=state)
        except (FileNotFoundError, NotADirectoryError):
            return None
        self.close()
        self._fd = self._sys.open(MIRROR, DIRECTORY, dir_fd=state)
        limit = floor_of(self._read_file(_OPEN))
        if limit is None:
            raise JournalError(
                f"The copy of {self._disk.root} is of another version; open it with the version that made it."
            )
        self.manifest = self._load(None)
        if limit == _NOTHING:
            self.commit()
            return None
        end = self._end
        wanted = self._load(limit)
        self._end = end
        self._sweep_count()
        failed = self.restore(wanted)
        self.commit()
        return failed

    def _sweep_count(self) -> None:
        numbers = [int(name[1:]) for name in self._sys.names(self._fd) if name[:1] == "c" and name[1:].isdigit()]
        self._count = max(numbers, default=0)

    def restore(self, wanted: Manifest) -> list[str]:
        """Make the root what it was, whoever changed it; the paths that could not be put back, after all others."""
        current = Scan(self._disk, self.manifest, self._look, opened=wanted).run()
        restored, failed = Restoration(self._disk, self._fd, current, wanted).run()

        def describe(path: str, at: int, name: str, info: os.stat_result, known: Entry | None) -> Entry:
            was = restored.get(path)
            if was is not None and (was.mode, was.mtime) == (info.st_mode, info.st_mtime_ns):
                return entry(info, time.time_ns(), copy=was.copy, xattrs=was.xattrs, opaque=was.opaque)
            return self._describe(path, at, name, info, known)

        with suppress(OSError):  # time saved for the next snapshot, which looks for itself where this found no room
            self._advance(Scan(self._disk, self.manifest, describe).run())
        return failed

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


def _shown(path: str, found: Entry) -> str:
    return f"{path}/" if stat.S_ISDIR(found.mode) else path


__all__ = ["Mirror"]
