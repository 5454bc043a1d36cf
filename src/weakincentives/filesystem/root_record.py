"""The description of a root's vault, in its private entry: where it is, and how to tell it from another."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from contextlib import suppress
from hmac import compare_digest
from typing import Final, NamedTuple

from .frames import Authenticator
from .state_dir import IDLE, RECORD
from .syscalls import CREATE, Syscalls, write_all

_VERSION: Final = "wink-root-2"
SAME: Final = "."
"""The vault's name where it is the entry itself."""

_vault_name = re.compile(r"\.|\.(?:[^/\0]+\.)?wink-[0-9a-f]{16}").fullmatch


class RootRecord(NamedTuple):
    """Which vault a root has; without an inode it is only intended."""

    path: str
    vault: str
    inside: bool
    inode: int = 0
    born: int = 0


def read_record(sys: Syscalls, entry: int, keys: Authenticator) -> RootRecord | None:
    """The description, or None where there is none, or one that is not authentic."""
    try:
        fd = sys.open(RECORD, os.O_RDONLY | os.O_NONBLOCK, dir_fd=entry)
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ELOOP, errno.ENXIO}:
            return None
        raise
    try:
        data = sys.read(fd, 1 << 16) if stat.S_ISREG(sys.fstat(fd).st_mode) else b""
    finally:
        sys.close(fd)
    if not compare_digest(data[:16], keys.mac(b"R", IDLE, data[16:])):
        return None
    version, *fields = json.loads(data[16:])
    if version != _VERSION:
        return None
    record = RootRecord(*fields)
    return record if _vault_name(record.vault) else None


def write_record(sys: Syscalls, entry: int, keys: Authenticator, record: RootRecord, *, durable: bool) -> None:
    """Put it in place in one step."""
    body = json.dumps((_VERSION, *record)).encode()
    staged = f"stage-{os.urandom(6).hex()}-0"
    fd = sys.open(staged, CREATE, 0o600, dir_fd=entry)
    try:
        try:
            write_all(sys, fd, keys.mac(b"R", IDLE, body) + body)
            if durable:
                sys.fsync(fd)
        finally:
            sys.close(fd)
        sys.rename(staged, RECORD, source_fd=entry, target_fd=entry)
    except BaseException:
        with suppress(OSError):
            sys.unlink(staged, dir_fd=entry)
        raise
    if durable:
        sys.fsync(entry)


__all__ = ["SAME", "RootRecord", "read_record", "write_record"]
