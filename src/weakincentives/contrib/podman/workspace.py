"""The folder that a container works in: the host's view of it, its owner, and its end."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast, final

from ...errors import PromptValidationError, SandboxError
from ...fence import Owner
from ...filesystem import FileChanges, HostFilesystem
from ...filesystem.disk.locations import hides_state
from ...filesystem.views import WrapperFilesystem
from .container import CLOSED, Container
from .inside.scratch import Bounds, over
from .leftovers import make_folder, remove_folder

AGENT: Final = (1000, 1000)
"""User and group that a container runs as when this process is root; never root itself."""

REMOVAL_TIMEOUT_SECONDS: Final = 60.0
"""Seconds that removing a temporary workspace may take."""

_log = logging.getLogger(__name__)


@final
class _Closed:
    """Takes the place of files that were closed."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        raise SandboxError(CLOSED)


_CLOSED: Final = cast(Any, _Closed())


@final
class ContainerWorkspaceFilesystem(WrapperFilesystem):
    """The files that a container works on. Before they are restored, all that still runs in the container is ended."""

    __slots__ = ("_container",)

    def __init__(self, fs: HostFilesystem, container: Container) -> None:
        super().__init__(fs)
        self._container = container

    # Once closed, a snapshot is of nothing: it is the tool that fails then, and says why.

    def snapshot(self) -> Any:
        """See `Filesystem.snapshot`."""
        return _CLOSED if self._fs is _CLOSED else super().snapshot()

    def savepoint(self, owner: Owner | None = None, *, for_all: bool = False) -> Any:
        """See `HostFilesystem.savepoint`."""
        return _CLOSED if self._fs is _CLOSED else super().savepoint(owner, for_all=for_all)

    def changes(self, since: Any, /) -> FileChanges:
        """See `Filesystem.changes`."""
        return FileChanges() if since is _CLOSED else super().changes(since)

    def changes_before_restore(self, since: Any, /) -> FileChanges:
        """See `SavepointFilesystem.changes_before_restore`; nothing may run between this and the restore."""
        if since is _CLOSED:
            return FileChanges()
        self._container.halt()
        return super().changes_before_restore(since)

    def restore(self, snapshot: Any, /) -> None:
        """See `Filesystem.restore`; the container's processes would write to the files while they are restored."""
        if snapshot is not _CLOSED:
            self._container.halt()
            super().restore(snapshot)

    def release(self, snapshot: Any, /) -> None:
        """See `Filesystem.release`."""
        if snapshot is not _CLOSED:
            super().release(snapshot)

    def close(self) -> None:
        """From now on every use raises `SandboxError`. The workspace closes the files themselves."""
        self._fs = _CLOSED


@final
class ContainerWorkspace:
    """A folder that belongs to the user a container runs as, opened so that every change in it can be undone.

    Without a `root` it is a temporary one that `close` removes. `PromptValidationError` for a root that a container
    cannot or must not work in.

    Attributes:
        root: the folder, resolved.
        user: user and group that own it and run the container.
        rootless: whether this process lacks root's rights.
    """

    def __init__(self, root: str | os.PathLike[str] | None, files: Mapping[str, str | bytes]) -> None:
        self._pid = os.getpid()
        self.rootless: bool = os.geteuid() != 0
        self.user = (os.geteuid(), os.getegid()) if self.rootless else AGENT
        self._parent = make_folder() if root is None else None
        self._host: HostFilesystem | None = None
        try:
            folder = self._parent / "workspace" if self._parent is not None else Path(os.fspath(root or "."))
            if not folder.exists():
                folder.mkdir(parents=True)
                if not self.rootless:
                    os.chown(folder, *self.user)
            self.root: Path = folder.resolve()
            self._take_owner()
            state_dir = None if self._parent is None else self._parent / "state"  # goes with the folder
            self._check_journal(state_dir)
            owner = None if self.rootless else self.user
            self._host = HostFilesystem(self.root, watch="scan", owner=owner, state_dir=state_dir)
            for path, content in files.items():
                self.host.write(path, content)
        except BaseException:
            self.close()
            raise

    @property
    def host(self) -> HostFilesystem:
        """The files."""
        assert self._host is not None
        return self._host

    def check(self, disk: int, files: int) -> None:
        """`PromptValidationError` when what is in it is more than it may hold, or could not be restored."""
        why = over(str(self.root), Bounds(disk, files, 0, self.rootless), final=True)
        if why is not None:
            problem = why.partition("\n")[0]
            raise PromptValidationError(
                f"A sandbox cannot work on {self.root}: {problem}. Raise disk= or max_files=, or take out what does "
                "not belong there."
            )

    def close(self) -> None:
        """Close the files, and remove a temporary folder. Twice is fine; the container must have ended.

        In a forked process this does nothing: the files are the parent's, which still works on them.
        """
        if os.getpid() != self._pid:
            return
        if self._host is not None:
            self._host.close()
        if (
            self._parent is not None
            and self._parent.exists()
            and not remove_folder(self._parent, REMOVAL_TIMEOUT_SECONDS)
        ):
            _log.warning("%s could not be emptied; remove it by hand", self._parent)

    def _check_journal(self, state_dir: Path | None) -> None:
        """Before the folder is opened: that would undo what a killed process left in it."""
        if hides_state(self.root, state_dir):
            raise PromptValidationError(
                f"The journal of {self.root} would be inside it, where the container could change it. Use a folder "
                f"whose parent is on the same filesystem and can be written, such as {self.root / 'workspace'}."
            )

    def _take_owner(self) -> None:
        if ":" in str(self.root):
            raise PromptValidationError(f"The path {self.root} has a colon in it, which podman cannot mount.")
        if self.rootless:
            return
        found = self.root.stat()
        if found.st_uid == 0:
            raise PromptValidationError(
                f"The folder {self.root} belongs to root, and a container never runs as root. Give it away, with all "
                f"that is in it: chown -R {AGENT[0]}:{AGENT[1]} {self.root}"
            )
        self.user = (found.st_uid, found.st_gid)
