"""Making a digest, and keeping the one in a session true."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from operator import attrgetter

from ....filesystem import Filesystem, HostFilesystem
from ....session import SessionProtocol, upsert_by
from .digest import DEFAULT_NAME, DigestConfig, WorkspaceDigest
from .manifests import find
from .scan import Scan, scan
from .text import body_of, languages_of, summary_of

logger = logging.getLogger(__name__)

DigestSource = Filesystem | str | os.PathLike[str]
"""Where the files are: a filesystem, or a directory of this machine."""
Improve = Callable[[str], str]
"""Makes a better digest of a digest, mostly by asking a model; what it raises is logged and the digest kept."""

_DEFAULT = DigestConfig()
_by_name = upsert_by(attrgetter("name"))


def build_digest(
    source: DigestSource,
    *,
    config: DigestConfig | None = None,
    improve: Improve | None = None,
    name: str = DEFAULT_NAME,
) -> WorkspaceDigest:
    """The digest of a workspace as it is now. Without `improve` it is made from the files alone, always the same.

    Files that `.gitignore` leaves out do not count, symlinks are not followed, and of no file more than a manifest's
    beginning is read. A directory is opened read-only. Raises `FileNotFoundError` or `NotADirectoryError` when the
    source is none.

    >>> from weakincentives.filesystem import InMemoryFilesystem
    >>> files = InMemoryFilesystem({"src/main.py": "print('hi')", "README.md": "# A greeter"})
    >>> build_digest(files).summary
    '2 files in 1 directory, 22 B; mostly Python. Entry points: `src/main.py`.'
    """
    config = config or _DEFAULT
    with _opened(source) as fs:
        digest = _made(fs, scan(fs, config), config, name)
    return digest if improve is None else _improved(digest, improve, config)


def refresh_digest(
    session: SessionProtocol,
    source: DigestSource,
    *,
    config: DigestConfig | None = None,
    improve: Improve | None = None,
    name: str = DEFAULT_NAME,
) -> WorkspaceDigest:
    """The session's digest, made again when files have changed since. Raises as `build_digest` does.

    Called inside a tool call, the session forgets it again when that call fails.
    """
    config = config or _DEFAULT
    install_digest(session)
    known = digest_of(session, name)
    with _opened(source) as fs:
        found = scan(fs, config)
        digest = known
        if digest is None or digest.fingerprint != found.fingerprint:
            digest = _made(fs, found, config, name)
    if improve is not None and not digest.improved:
        digest = _improved(digest, improve, config)
    if digest is not known:
        session.dispatch(digest)
    return digest


def current_digest(
    source: DigestSource, known: Iterable[WorkspaceDigest | None], config: DigestConfig, name: str
) -> WorkspaceDigest:
    """What is true now: the first known digest that still is, else a new one. Changes nothing."""
    with _opened(source) as fs:
        found = scan(fs, config)
        for digest in known:
            if digest is not None and digest.fingerprint == found.fingerprint:
                return digest
        return _made(fs, found, config, name)


def digest_of(session: SessionProtocol, name: str = DEFAULT_NAME) -> WorkspaceDigest | None:
    """The digest of that name in a session, or None."""
    return next((digest for digest in reversed(session[WorkspaceDigest].all()) if digest.name == name), None)


def install_digest(session: SessionProtocol) -> None:
    """Let a session keep one digest of each name. May be repeated."""
    session[WorkspaceDigest].register(WorkspaceDigest, _by_name)


def _opened(source: DigestSource) -> AbstractContextManager[Filesystem]:
    if isinstance(source, str | os.PathLike):
        return HostFilesystem(source, read_only=True)
    return nullcontext(source)


def _made(fs: Filesystem, found: Scan, config: DigestConfig, name: str) -> WorkspaceDigest:
    languages = languages_of(fs, found.files)
    findings = find(fs, found.files)
    return WorkspaceDigest(
        summary=summary_of(found, languages, findings),
        body=body_of(found, languages, findings, config),
        fingerprint=found.fingerprint,
        files=len(found.files),
        size=sum(entry.size for entry in found.files),
        name=name,
    )


def _improved(digest: WorkspaceDigest, improve: Improve, config: DigestConfig) -> WorkspaceDigest:
    try:
        text = improve(digest.body).strip()
    except Exception:  # a model was asked, or whatever else the caller thought of
        logger.warning("The digest could not be improved; the plain one is kept", exc_info=True)
        return digest
    if not text:
        return digest
    return replace(digest, body=text[: config.max_chars], improved=True)


__all__ = [
    "DigestSource",
    "Improve",
    "build_digest",
    "current_digest",
    "digest_of",
    "install_digest",
    "refresh_digest",
]
