"""A run in a store, as a program names it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, final

from ...errors import RunConflictError
from ...prompt.tool import Tool
from ...serde import dump_json
from ...session import Session
from .calls import RunRecorder
from .files import FilesToKeep, World, checked_files
from .protocol import RunStore
from .recorder import Recorder, refusal
from .resources import ResourceRecorder
from .rows import CONVERSATION, NewRun, RunInfo, digest_of
from .rows import not_resumable as recorded_reason

_MAX_INSIDE = 160
"""Characters of the id of a run inside a call. A longer one is its hash, so that a store takes it at any depth."""


@final
@dataclass(frozen=True, slots=True)
class RunRecord:
    """Which run of which store an evaluation is: `adapter.evaluate(prompt, session, record=store.run("id"))`.

    Attributes:
        loop: who runs it, for listings.
        request: the request as JSON, if there is one.
        request_digest: tells requests apart: another one under the same id is refused.
        types: the classes of values in the session that neither a slice nor a tool names.
        world: what to do about files that another program changed while the run was down.
        retry: go on with a run that failed, from where it was; without it, its recorded error is raised again.
        accept_unrecorded: the names of resources whose state is not recorded, and that may have another when the run
            goes on: what they are bound as, in full (`shop.till:Till`) or the class alone.
        accept_changed: the names of tools that were changed or removed, and whose recorded calls need not be read.
        resumable: False for a run that is to be looked at and not gone on with. Values that could not be read back are
            then recorded as their JSON view instead of being refused. Of a run that is there already, its record says.
        files: which files are kept with their content; see `FilesToKeep`.
        parent: the run in a call of which this one happens, as a sub-agent's does.
        is_conversation: whether it is a conversation, with many messages.
        history: what a conversation goes on from, as JSON; empty when there is nothing.
    """

    store: RunStore
    run_id: str
    loop: str = ""
    request: str | None = None
    request_digest: str = ""
    types: tuple[type[Any], ...] = ()
    world: World = "check"
    retry: bool = False
    accept_unrecorded: tuple[str, ...] = ()
    accept_changed: tuple[str, ...] = ()
    resumable: bool = True
    files: FilesToKeep = "changed"
    parent: str | None = None
    is_conversation: bool = False
    history: str = ""

    def __post_init__(self) -> None:
        checked_files("files", self.files)

    def open(
        self,
        session: Session,
        prompt_name: str,
        tools: Iterable[Tool[Any, Any]],
        *,
        not_resumable: str = "",
        resources: ResourceRecorder | None = None,
    ) -> RunRecorder:
        """Take the run and give the session what is on record; waits for the store.

        `resources` are those of the prompt, which were looked at where they are used (`ResourceRecorder.begin`).
        `not_resumable` says why its adapter cannot go on with a run that was interrupted: `NotResumableError` for such
        a one, as for one that was recorded with `resumable=False`. `RunBusyError` while another process has it,
        `RunConflictError` when it belongs to another request, `RunFormatError` when its record cannot be read.
        """
        digest = CONVERSATION + self.request_digest if self.is_conversation else self.request_digest
        new = NewRun(self.loop or prompt_name, session.session_id, self.request, digest, self.parent)
        if self.retry:
            self._check_retry(not_resumable)
        held = self.store.take(self.run_id, new, retry=self.retry)
        try:
            self._check_request(held.info, digest)
            recorder = Recorder(
                self.store, held, self.types, self.accept_unrecorded, self.accept_changed,
                resumable=self.resumable, not_resumable=not_resumable, keep_files=self.files,
                resources=resources, history=self.history,
            )  # fmt: skip
            recorder.open(session, tools, prompt_name)
        except BaseException:
            held.release()
            raise
        return RunRecorder(recorder, self._inside, goes_on=self.is_conversation)

    def _inside(self, rows: Recorder, call_id: str, name: str) -> RunRecord:
        """It is found again by the call's id when this run goes on."""
        run_id = f"{self.run_id}/{call_id}"
        if len(run_id) > _MAX_INSIDE:
            run_id = digest_of(run_id.encode("utf-8", "surrogatepass"))
        return replace(
            self, run_id=run_id, parent=self.run_id, loop=name, types=tuple(rows.types), request=None,
            request_digest="", retry=False, is_conversation=False, history="",
        )  # fmt: skip

    def _check_retry(self, reason: str) -> None:
        """Refuse before the run is taken: a failed run that is taken for another attempt counts as running."""
        for begin in self.store.steps(self.run_id, until=1):
            reason = recorded_reason(begin) or reason
            if reason:
                raise refusal(self.run_id, reason)

    def _check_request(self, info: RunInfo, digest: str) -> None:
        check_kind(info, is_conversation=self.is_conversation)
        if info.request_digest != digest:
            raise RunConflictError(
                f"The run {self.run_id!r} was begun with another request. Choose another id, or send the same."
            )


def check_kind(info: RunInfo, *, is_conversation: bool) -> None:
    """`RunConflictError` for a conversation where a run of one request is wanted, and the other way round."""
    if info.is_conversation and not is_conversation:
        raise RunConflictError(
            f"The run {info.run_id!r} is a conversation: go on with it with loop.conversation(id={info.run_id!r})."
        )
    if is_conversation and not info.is_conversation:
        raise RunConflictError(
            f"The run {info.run_id!r} answers one request, so it is not a conversation: go on with it with "
            f"loop.resume({info.run_id!r}), or choose another id."
        )


def request_text(request: Any) -> tuple[str | None, str]:
    """A request as JSON, or None when it has no such form, and what tells it from others."""
    try:
        text = dump_json(request)
    except Exception:  # noqa: BLE001 - requests are of any class
        return None, ""
    return text, digest_of(text.encode("utf-8", "surrogatepass"))


__all__ = ["RunRecord", "check_kind", "request_text"]
