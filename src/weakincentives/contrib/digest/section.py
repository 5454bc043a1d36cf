"""The digest as a section: a summary until the model wants to read it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...prompt import MarkdownSection, Section, SectionVisibility
from ...prompt.section import Enabled, Visibility, suite_config
from ...session import SessionProtocol
from .build import DigestSource, Improve, current_digest, install_digest, refresh_digest, session_digest
from .digest import DEFAULT_NAME, DigestConfig, WorkspaceDigest

_BODY = "An outline of the workspace, made from its files. Ignored files do not count."
_SUMMARY = (
    "What the workspace holds, in outline: languages, entry points, key files, layout and sizes. "
    "Read it before you look for files."
)
_NONE = "Nothing is known about the workspace yet. Use the file tools to look around."


class WorkspaceDigestSection(MarkdownSection[Any]):
    """Tells the model what the workspace holds: a summary in the prompt, the digest through `read_section`.

    With a `source` (a filesystem or a directory) the session's digest is made again, without a model, whenever a
    prompt with this section is about to be evaluated and files have changed; and what the model reads is always true
    of the files as they are then. Without one it shows the digest that the session holds, as `refresh_digest` put it
    there.

    Several of them in one prompt need different keys; each key is the name of its digest in the session.

    Args:
        session: where to keep the digest from the start; whichever session evaluates the prompt gets it as well.
        config: how far to look and how much to say.
        improve: what `refresh` asks for better words; never called by anything else.

    Raises `OSError` when the source cannot be read.

    >>> from weakincentives.filesystem import InMemoryFilesystem
    >>> from weakincentives.session import Session
    >>> session = Session()
    >>> section = WorkspaceDigestSection(session=session, source=InMemoryFilesystem({"main.go": "package main"}))
    >>> session[WorkspaceDigest].latest().summary
    '1 file in 0 directories, 12 B; mostly Go. Entry points: `main.go`.'
    """

    def __init__(
        self,
        session: SessionProtocol | None = None,
        config: DigestConfig | None = None,
        *,
        source: DigestSource | None = None,
        improve: Improve | None = None,
        accepts_overrides: bool = False,
        key: str | None = DEFAULT_NAME,
        title: str = "Workspace digest",
        children: Iterable[Section[Any]] = (),
        enabled: Enabled | None = None,
        visibility: Visibility = SectionVisibility.SUMMARY,
    ) -> None:
        self.config: DigestConfig = suite_config(DigestConfig, session, config)
        self.source = source
        self.improve = improve
        self._latest: WorkspaceDigest | None = None
        super().__init__(
            title=title,
            template=_BODY,
            key=key,
            children=children,
            enabled=enabled,
            summary=_SUMMARY,
            visibility=visibility,
            accepts_overrides=accepts_overrides,
        )
        if session is not None:
            self.install(session)
        else:
            self._current(None)  # so that a source that cannot be read is refused here

    def install(self, session: SessionProtocol) -> None:
        """Register the reducer and, with a source, bring the session's digest up to date."""
        install_digest(session)
        digest = self._current(session)
        if digest is not None and digest is not session_digest(session, self.key):
            session.dispatch(digest)

    def refresh(self, session: SessionProtocol, source: DigestSource | None = None) -> WorkspaceDigest:
        """Bring the session's digest up to date and, with `improve`, into better words.

        The improved words are shown until files change; then the plain digest takes their place until the next call.
        `ValueError` when neither the section nor the call has a source.
        """
        source = self.source if source is None else source
        if source is None:
            raise ValueError("There is nothing to make a digest of; pass source= here or to the section.")
        return refresh_digest(session, source, config=self.config, improve=self.improve, name=self.key)

    def render_summary(self, params: Any, *, session: SessionProtocol | None = None) -> str:
        """What the digest is about, and the workspace in one line as it is now."""
        summary = super().render_summary(params, session=session)
        digest = self._current(session)
        return summary if digest is None else f"{summary}\n\nRight now: {digest.summary}"

    def render_state(self, session: SessionProtocol) -> str:
        """The digest as it is true now."""
        digest = self._current(session)
        return _NONE if digest is None else digest.body

    def _current(self, session: SessionProtocol | None) -> WorkspaceDigest | None:
        known = None if session is None else session_digest(session, self.key)
        if self.source is None:
            return known
        digest = current_digest(self.source, (known, self._latest), self.config, self.key)
        if not digest.improved:
            self._latest = digest  # spares another session the work, as long as no file changes
        return digest
