"""What a run record consists of: runs, their steps, the files and blobs that steps refer to. Format version 1."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, final

from ...filesystem.protocol import LargeFile
from ...lazy_modules import hashlib

VERSION = 1

RunStatus = Literal["running", "paused", "done", "failed"]
"""running: it is under way, or its process ended before it; paused: it waits for a decision, or a conversation for the
next message; done, failed: it ended."""

StepKind = Literal["begin", "prompt", "turn", "started", "call", "asked", "decided", "message", "compacted", "end"]
"""begin: the state at first; prompt: what the model is told, when it differs from before; turn: what the model said;
started: a call that may reach the world outside is about to run; call: one that ended; asked, decided: an approval;
message: a user's, or what undid one; compacted: history that was shortened; end: the answer, or the error."""

CONVERSATION = "conversation:"
"""What the digest of a conversation's request begins with: no run that `execute` began has such a one."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One row of a run. The columns can be read without parsing; what else there is to say is in `body`.

    Attributes:
        seq: its number in the run, from 1 on.
        parent_seq: the call that this one was made in.
        turn: which answer of the model it belongs to, from 1 on; 0 before the first.
        started: when it began, in seconds since the epoch.
        body: JSON data.
    """

    seq: int
    kind: StepKind
    turn: int = 0
    parent_seq: int | None = None
    call_id: str | None = None
    tool: str | None = None
    outcome: str | None = None
    started: float = 0.0
    duration: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    body: Mapping[str, Any] = field(default_factory=dict[str, Any])


@final
@dataclass(frozen=True, slots=True)
class FileStep:
    """What a step did to one path: what was there before and after, each as a node; None where there was nothing.

    A node is `file:<mode>:<hash>`, `directory:<mode>` or `symlink:<hash of its target>`, the mode in octal.
    """

    path: str
    seq: int
    before: str | None
    after: str | None


class FrameStep(NamedTuple):
    """A step that changed a slice, which is named as in the step's body, or `notes`.

    `blob` is the whole slice after the step, empty when the step has it itself, and None for the change alone. A row
    with an empty name says that all rows up to its step are there.
    """

    slice: str
    seq: int
    blob: str | None


class NewRun(NamedTuple):
    """What is known of a run when it begins.

    Attributes:
        loop: the class of the loop, or the name of the prompt.
        request: the request as JSON; None when it could not be recorded.
        request_digest: tells requests apart; empty when there is none.
        parent: the run that this one was forked from, or, without `forked_at`, in a call of which it happened.
        lineage: the run that this one is, or was forked from: session-scoped effects belong to it.
    """

    loop: str
    session_id: str
    request: str | None = None
    request_digest: str = ""
    parent: str | None = None
    forked_at: int | None = None
    lineage: str = ""
    tags: Mapping[str, str] = {}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """One run as a listing shows it. `alive` says that a process has it now."""

    run_id: str
    loop: str
    session_id: str
    lineage: str
    status: RunStatus
    owner: str
    token: int
    created: float
    updated: float
    parent: str | None = None
    forked_at: int | None = None
    request: str | None = None
    request_digest: str = ""
    tags: Mapping[str, str] = field(default_factory=dict[str, str])
    alive: bool = False

    @property
    def is_inside(self) -> bool:
        """Whether it is what an agent did inside a call of its `parent`: that goes on with it."""
        return self.parent is not None and self.forked_at is None

    @property
    def is_conversation(self) -> bool:
        """Whether it is a conversation: `loop.conversation(id=...)` goes on with it."""
        return self.request_digest.startswith(CONVERSATION)

    @property
    def interrupted(self) -> bool:
        """Whether it is not over, and no process has it."""
        return self.status == "running" and not self.alive


Content = bytes | LargeFile
"""What a blob holds; a large file is read from where it is, by pieces."""


class NewRows(NamedTuple):
    """What one transaction adds to a run: all of it, or nothing.

    `status` is what the run becomes, if anything.
    """

    steps: Sequence[Step] = ()
    files: Sequence[FileStep] = ()
    blobs: Mapping[str, Content] = {}
    status: RunStatus | None = None
    frames: Sequence[FrameStep] = ()


def awaits_message(step: Step) -> bool:
    """Whether a conversation whose last step this is waits for the next message."""
    return step.kind in {"begin", "end"} or step.body.get("as") == "undo"


def not_resumable(begin: Step) -> str:
    """Why a run that begins with this step cannot go on once it was interrupted; empty when it can."""
    return str(begin.body.get("not_resumable", ""))


def digest_of(content: Content) -> str:
    """The name of a blob: BLAKE2b, 160 bits, in hexadecimal."""
    if isinstance(content, bytes):
        return hashlib.blake2b(content, digest_size=20).hexdigest()
    made = hashlib.blake2b(digest_size=20)
    for piece in content.pieces():
        made.update(piece)
    return made.hexdigest()


def pieces_of(content: Content) -> Iterable[bytes]:
    """All of it, from the beginning."""
    return (content,) if isinstance(content, bytes) else content.pieces()


def size_of(content: Content) -> int:
    """How many bytes it has."""
    return len(content) if isinstance(content, bytes) else content.size


def whole(content: Content) -> bytes:
    """All of it at once."""
    return content if isinstance(content, bytes) else b"".join(content.pieces())


__all__ = [
    "CONVERSATION",
    "VERSION",
    "Content",
    "NewRows",
    "FileStep",
    "FrameStep",
    "NewRun",
    "RunInfo",
    "RunStatus",
    "Step",
    "StepKind",
    "awaits_message",
    "digest_of",
    "not_resumable",
    "pieces_of",
    "size_of",
    "whole",
]
