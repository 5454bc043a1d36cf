"""Every exception WINK raises, in one tree.

    WinkError
    |-- PromptError                    what an agent author declared, or how it ran
    |   |-- PromptValidationError      refused when it was built
    |   |-- PromptRenderError          could not be rendered with these params
    |   `-- PromptEvaluationError      the run ended; carries prompt and phase
    |-- ToolError                      raised by handlers to say what happened
    |   |-- ToolValidationError        the arguments make no sense; nothing was done
    |   |-- SandboxError               a sandbox cannot be started, or is not as tight as it must be
    |   `-- NoEffect                   the effect certainly did not happen; may be retried
    |-- VisibilityExpansionRequired    the model asked to open summarised sections
    |-- DeadlineExceededError          the run's time is up
    |-- BudgetExceededError            the run's tokens are used up
    |-- ContractError                  a `dbc` contract broke (also an AssertionError)
    |-- ParseError                     data did not fit a type (also a ValueError)
    |-- SchemaError                    a type that has no schema (also a TypeError)
    |-- StaleCallError                 a handle was used after its call was over
    |-- ReadOnlyError                  a write through a read-only handle (also a PermissionError)
    |-- RollbackError                  one or more participants could not be restored
    |-- EndlessRequestsError           more requests than a batch collects (also a ValueError)
    |-- LedgerError                    the effect ledger cannot do its work
    |   `-- LeaseLostError             another process holds the call now; nothing was recorded
    |-- RecordError                    the run record cannot do its work
    |   |-- RunBusyError               another process has the run
    |   |-- RunConflictError           the id belongs to a run of another request
    |   |-- RunFormatError             a record that cannot be read here, or a value that could not be read back
    |   |-- WorldChangedError          files are not as the record says
    |   `-- NotResumableError          a run that cannot be continued
    |-- SessionError
    |   |-- DispatchError              subscribers raised; from `DispatchResult.raise_if_errors()`
    |   |-- ReducerError               a reducer raised; nothing of its dispatch was applied
    |   |-- SessionBusyError           a call that cannot go on by itself holds what is needed
    |   |-- SnapshotError              a snapshot that cannot be restored here
    |   `-- SessionFormatError         a saved session that cannot be loaded
    |-- ResourceError
    |   |-- UnboundResourceError       nothing bound for a type (also a LookupError)
    |   |-- DuplicateBindingError      two bindings for one type
    |   |-- ResourceCycleError         providers that need one another
    |   |-- ResourceScopeError         a long-lived resource asked for a shorter-lived one
    |   |-- ProviderError              a provider raised
    |   `-- ResourcesClosedError       used after it was closed
    `-- FilesystemError                (also an OSError)
        |-- PathRefusedError           a path that leaves the root or names no ordinary file
        |-- NotTextError               bytes that are not text
        |-- PatternError               a glob or grep pattern that cannot be used
        |-- ConflictError              a write to a path that another open call has changed
        `-- JournalError               the undo journal cannot do its work

All of them survive pickling with their attributes, so that they cross process boundaries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any


def _rebuild(cls: type[WinkError], args: tuple[object, ...], state: dict[str, Any]) -> WinkError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class WinkError(Exception):
    """The root: `except WinkError` catches everything WINK itself raises."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__.copy())


class PromptError(WinkError):
    """What an agent author declared is wrong, or its evaluation ended."""


class _DeclarationError(PromptError):
    def __init__(
        self,
        message: str,
        *,
        section_path: Sequence[str] = (),
        tool_name: str | None = None,
        dataclass_type: type[Any] | None = None,
        placeholder: str | None = None,
    ) -> None:
        super().__init__(message)
        self.section_path: tuple[str, ...] = tuple(section_path)
        self.tool_name = tool_name
        self.dataclass_type = dataclass_type
        self.placeholder = placeholder


class PromptValidationError(_DeclarationError):
    """A tool, section or prompt was refused when it was built; the message names the fix."""


class PromptRenderError(_DeclarationError):
    """A prompt could not be rendered with the params it was given."""


class PromptEvaluationError(PromptError):
    """The evaluation ended without an answer.

    Attributes:
        prompt_name: the prompt that was evaluated.
        phase: where it ended: "request", "response", "tool", "budget", "deadline".
        tool_name: the tool in whose call it ended, or None.
    """

    def __init__(
        self, message: str, *, prompt_name: str | None = None, phase: str | None = None, tool_name: str | None = None
    ) -> None:
        super().__init__(message)
        self.prompt_name = prompt_name
        self.phase = phase
        self.tool_name = tool_name


class ToolError(WinkError):
    """Raised by tool handlers to say what happened."""


class ToolValidationError(ToolError):
    """The arguments passed the schema but make no sense; the model reads the text as it stands."""


class SandboxError(ToolError):
    """A sandbox cannot be started, is not as tight as it must be, or broke down; the text says what to do."""


class NoEffect(ToolError):  # noqa: N818 - it states a fact, not a fault
    """The effect certainly did not happen, so an idempotent call may be tried again."""


class VisibilityExpansionRequired(WinkError):  # noqa: N818 - a request, not a fault
    """The model asked to see sections that are shown as summaries.

    Attributes:
        section_keys: the paths of the sections to open, as "parent.child".
        reason: why the model wants them.
    """

    def __init__(self, message: str, *, section_keys: Sequence[str] = (), reason: str = "") -> None:
        super().__init__(message)
        self.section_keys: tuple[str, ...] = tuple(section_keys)
        self.reason = reason


class DeadlineExceededError(WinkError):
    """The deadline passed."""


class BudgetExceededError(WinkError):
    """The token budget is used up.

    Attributes:
        dimension: the limit that was hit: "total", "input" or "output".
        consumed: what was spent, a `TokenUsage`.
    """

    def __init__(self, message: str, *, dimension: str | None = None, consumed: Any = None) -> None:
        super().__init__(message)
        self.dimension = dimension
        self.consumed = consumed


class ContractError(WinkError, AssertionError):
    """A contract of `weakincentives.dbc` broke."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One thing wrong with parsed data.

    Attributes:
        path: where, as "items.0.name"; empty for the value as a whole.
        text: what is wrong, in words a model can act on.
        expected: what should have been there, or None where that does not apply.
        got: what was there, clipped.
    """

    path: str
    text: str
    expected: str | None = None
    got: str | None = None


class ParseError(WinkError, ValueError):
    """Data did not fit a type. `failures` holds everything that is wrong, not just the first.

    Attributes:
        found: the same as a sequence that may put each of them into words only when it is read.
    """

    def __init__(self, failures: Sequence[Failure]) -> None:
        super().__init__()
        self.found: Sequence[Failure] = tuple(failures) if isinstance(failures, list) else failures

    @cached_property
    def failures(self) -> tuple[Failure, ...]:
        """Everything that is wrong."""
        return tuple(self.found)

    @property
    def args(self) -> tuple[Any, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The message, as in every exception."""
        return (str(self),)

    def __str__(self) -> str:
        return "; ".join(f"{f.path}: {f.text}" if f.path else f.text for f in self.failures)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.failures,)


class SchemaError(WinkError, TypeError):
    """No schema can be made of a type; the message says which part and what to use instead."""


class StaleCallError(WinkError):
    """A handle was used after its call was over; nothing was changed."""


class ReadOnlyError(WinkError, PermissionError):
    """Something was written through a read-only handle; nothing was changed."""


class RollbackError(WinkError):
    """Participants could not be restored; all others were.

    Attributes:
        causes: one error for each of them, by its name.
        tool_name: the tool whose call could not be undone, or None outside a call.
    """

    def __init__(self, message: str, *, causes: Mapping[str, BaseException], tool_name: str | None = None) -> None:
        super().__init__(message)
        self.causes: dict[str, BaseException] = dict(causes)
        self.tool_name = tool_name


class EndlessRequestsError(WinkError, ValueError):
    """A batch that collects its results was given more requests than it may collect; `results` holds those so far."""

    def __init__(self, message: str, *, results: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.results: list[Any] = list(results)


class LedgerError(WinkError):
    """The effect ledger cannot do its work: locked, full, damaged, out of reach; the message says what to do.

    Raised while a call is claimed it means that the handler did not run.
    """


class LeaseLostError(LedgerError):
    """The call's lease ran out and another process holds its row, or settled it; nothing was recorded."""


class RecordError(WinkError):
    """The run record cannot do its work: locked, full, damaged, out of reach; the message says what to do.

    A call that could not be recorded was undone, and ends the run.
    """


class RunBusyError(RecordError):
    """Another process has the run; nothing was recorded, and a call that was to be recorded was undone.

    Attributes:
        owner: which process, as it named itself.
    """

    def __init__(self, message: str, *, run_id: str = "", owner: str = "") -> None:
        super().__init__(message)
        self.run_id = run_id
        self.owner = owner


class RunConflictError(RecordError):
    """The id of the run belongs to another request; nothing was run."""


class RunFormatError(RecordError):
    """A record that cannot be read here, or a value that is not recorded because it could not be read back."""


class WorldChangedError(RecordError):
    """Files are not as the record says; nothing was run.

    Attributes:
        paths: the files that differ.
        nodes: what the record has at each of them and what was found, such as `file:644:<hash>`; None for nothing.
    """

    def __init__(
        self,
        message: str,
        *,
        paths: Sequence[str] = (),
        nodes: Mapping[str, tuple[str | None, str | None]] | None = None,
    ) -> None:
        super().__init__(message)
        self.paths: tuple[str, ...] = tuple(paths)
        self.nodes: Mapping[str, tuple[str | None, str | None]] = dict(nodes or {})


class NotResumableError(RecordError):
    """The run was recorded, but cannot be continued; the message says why."""


class SessionError(WinkError):
    """Something about a session's state."""


class DispatchError(SessionError):
    """Subscribers raised. `causes` holds what each of them raised, in the order in which they ran."""

    def __init__(self, message: str, *, causes: Sequence[Exception] = ()) -> None:
        super().__init__(message)
        self.causes: tuple[Exception, ...] = tuple(causes)


class ReducerError(SessionError):
    """A reducer raised (the cause); nothing of its dispatch was applied."""


class SessionBusyError(SessionError):
    """The session or the files are held by a call of an event loop that does not run; it says how to go on."""


class SnapshotError(SessionError):
    """A snapshot cannot be restored: it is another object's, or was released."""


class SessionFormatError(SessionError):
    """A saved session cannot be loaded: unknown or changed types, or a damaged file."""


class ResourceError(WinkError):
    """Something about injected resources."""


class UnboundResourceError(ResourceError, LookupError):
    """Nothing is bound for the type; the message says how to bind it."""


class DuplicateBindingError(ResourceError):
    """Two bindings for one type."""


class ResourceCycleError(ResourceError):
    """Providers need one another; the message shows the path.

    `cycle` holds the types along the circle, each needed by the one before it; the first is also the last.
    """

    def __init__(self, message: str, *, cycle: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.cycle: tuple[Any, ...] = tuple(cycle)


class ResourceScopeError(ResourceError):
    """A resource asked for one that would not live as long as itself."""


class ProviderError(ResourceError):
    """A provider or `post_construct` raised (the cause)."""


class ResourcesClosedError(ResourceError):
    """The resource context is closed."""


class FilesystemError(WinkError, OSError):
    """Something about files, beside the built-in OSError family that is used where it fits."""


class PathRefusedError(FilesystemError, PermissionError):
    """The path leaves the root, passes a symlink, or names no ordinary file or directory."""


class NotTextError(FilesystemError):
    """The file's bytes are not text; `read_bytes` gives them."""


class PatternError(FilesystemError, ValueError):
    """A glob or grep pattern is not valid, or took too long."""


class ConflictError(FilesystemError):
    """The path, or one above or below it, was changed by a call that is still open and is not the writer's own."""


class JournalError(FilesystemError):
    """The undo journal cannot do its work; the message says what to do."""


__all__ = [
    "BudgetExceededError",
    "ConflictError",
    "ContractError",
    "DeadlineExceededError",
    "DispatchError",
    "DuplicateBindingError",
    "EndlessRequestsError",
    "Failure",
    "FilesystemError",
    "JournalError",
    "LeaseLostError",
    "LedgerError",
    "NoEffect",
    "NotResumableError",
    "NotTextError",
    "ParseError",
    "PathRefusedError",
    "PatternError",
    "PromptError",
    "PromptEvaluationError",
    "PromptRenderError",
    "PromptValidationError",
    "ProviderError",
    "ReadOnlyError",
    "RecordError",
    "ReducerError",
    "ResourceCycleError",
    "ResourceError",
    "ResourceScopeError",
    "ResourcesClosedError",
    "RollbackError",
    "RunBusyError",
    "RunConflictError",
    "RunFormatError",
    "SandboxError",
    "SchemaError",
    "SessionBusyError",
    "SessionError",
    "SessionFormatError",
    "SnapshotError",
    "StaleCallError",
    "ToolError",
    "ToolValidationError",
    "UnboundResourceError",
    "VisibilityExpansionRequired",
    "WinkError",
    "WorldChangedError",
]
