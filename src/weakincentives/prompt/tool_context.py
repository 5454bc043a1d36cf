"""What a handler may touch while its call runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from reprlib import Repr
from typing import Any, Protocol, TypedDict, TypeVar, Unpack, final, runtime_checkable

from ..budget import BudgetTracker
from ..deadlines import Deadline
from ..filesystem import Filesystem
from ..interrupts import Lock
from ..resources import Resolver, ResourceContext, ResourceRegistry
from ..resources.context import ToolScope
from ..run_context import Heartbeat, RunContext
from ..session import Session, SessionProtocol
from ..signatures import annotations_of

# What a handler may rely on of the prompt and the adapter that its call belongs to.


OutputT_co = TypeVar("OutputT_co", covariant=True)


@runtime_checkable
class PromptProtocol(Protocol[OutputT_co]):
    """The prompt being executed. `Prompt` is the implementation."""

    @property
    def ns(self) -> str:
        """The namespace of its template."""
        ...

    @property
    def key(self) -> str:
        """The key of its template within the namespace."""
        ...

    @property
    def name(self) -> str:
        """The name used in events and error messages."""
        ...

    @property
    def output_type(self) -> type[OutputT_co] | None:
        """The type its final answer is parsed into, if there is one."""
        ...


@runtime_checkable
class RenderedPromptProtocol(Protocol[OutputT_co]):
    """What the model was sent. `RenderedPrompt` is the implementation."""

    @property
    def text(self) -> str:
        """The rendered sections."""
        ...

    @property
    def tools(self) -> Sequence[Any]:
        """The enabled tools, in declaration order."""
        ...

    @property
    def output_type(self) -> type[OutputT_co] | None:
        """The type its final answer is parsed into, if there is one."""
        ...


@runtime_checkable
class ProviderAdapterProtocol(Protocol[OutputT_co]):
    """Talks to the model and runs its tool calls.

    Events show its `name` where it has one, as every `Adapter` does, else the name of its class.
    """

    @property
    def evaluate(self) -> Callable[..., Any]:
        """`evaluate(prompt, session, **options)` runs the whole tool loop for a prompt.

        The response's `output` is of the prompt's output type. The options are each adapter's own, by name.
        """
        ...


# The resources of a context that was made by hand, as a test makes one.


_MISSING: Any = object()


@final
class ContextResources:
    """A registry, opened when something is first asked for, as one call would see it.

    Nothing tells when the context is no longer needed: what was built stays open until `close`.
    """

    __slots__ = ("_lock", "_registry", "_scope", "context")

    def __init__(self, registry: ResourceRegistry) -> None:
        self._registry = registry
        self._lock = Lock()
        self._scope: ToolScope | None = None
        self.context: ResourceContext = registry.open()

    def get(self, resource_type: Any, /, default: Any = _MISSING) -> Any:
        """The resource, built on first use; see `ResourceContext.get`."""
        scope = self._opened()
        return scope.get(resource_type) if default is _MISSING else scope.get(resource_type, default)

    async def aget(self, resource_type: Any, /, default: Any = _MISSING) -> Any:
        """Like `get`, for async code."""
        scope = self._opened()
        if default is _MISSING:
            return await scope.aget(resource_type)
        return await scope.aget(resource_type, default)

    def __contains__(self, resource_type: object, /) -> bool:
        return resource_type in self._registry

    def _opened(self) -> ToolScope:
        with self._lock:
            if self._scope is None:
                self.context.__enter__()  # an evaluation on the same resources enters and leaves them once more
                self._scope = self.context.tool_scope()
            return self._scope

    def close(self) -> None:
        """Close what was built, newest first; it opens anew when something is asked for again."""
        with self._lock:
            scope, self._scope = self._scope, None
        if scope is not None:
            scope.close()
            self.context.__exit__(None, None, None)

    def __repr__(self) -> str:
        return repr(self._registry)


def usable(registry: ResourceRegistry) -> ResourceRegistry | ContextResources:
    """What a handler can get everything from: the registry itself when nothing has to be built."""
    bindings = (registry.binding(key) for key in registry)
    return registry if all(binding is None or binding.given for binding in bindings) else ContextResources(registry)


_NO_RESOURCES = ResourceRegistry()
_set = object.__setattr__  # past `ToolContext.__setattr__`, which refuses


class ContextChanges(TypedDict, total=False):
    """What `ToolContext.replace` takes: the arguments of the constructor."""

    prompt: PromptProtocol[Any] | None
    rendered_prompt: RenderedPromptProtocol[Any] | None
    adapter: ProviderAdapterProtocol[Any] | None
    session: SessionProtocol | None
    deadline: Deadline | None
    budget_tracker: BudgetTracker | None
    resources: Resolver | ResourceRegistry | None
    heartbeat: Heartbeat | None
    run_context: RunContext | None
    call_id: str | None
    tool_name: str | None
    idempotency_key: str | None


class ToolContext:
    """Everything a handler may touch; made for one call and revoked when it ends.

    Once the call is over, writes through `session`, its dispatcher and `filesystem` raise `StaleCallError`. Every
    field has a default, so that a test names only what its handler uses: a session of its own, no resources. Fields
    cannot be set; `replace` makes another context.

    Attributes:
        prompt: the prompt being executed.
        rendered_prompt: what the model was sent, when there is such a thing.
        adapter: who talks to the model.
        session: the state, by type; `session.dispatcher` is where events are published.
        deadline: when the run must be over.
        resources: what was bound for handlers, by type. A registry that is passed here is opened when it is first
            used, and what its providers build stays open: `weakincentives.testing.make_context` can close it.
        heartbeat: see `beat`.
        run_context: the run's correlation ids.
        call_id: the model's id of this call.
        tool_name: the tool that is called.
        idempotency_key: under which key the call is recorded, to be passed on to services that take one.

    >>> context = ToolContext(resources=ResourceRegistry.build({str: "hello"}))
    >>> context.resources.get(str), context.filesystem, context.budget_tracker
    ('hello', None, None)
    """

    __slots__ = (
        "_budget_tracker",
        "_source",
        "adapter",
        "call_id",
        "deadline",
        "heartbeat",
        "idempotency_key",
        "prompt",
        "rendered_prompt",
        "resources",
        "run_context",
        "session",
        "tool_name",
    )

    prompt: PromptProtocol[Any] | None
    rendered_prompt: RenderedPromptProtocol[Any] | None
    adapter: ProviderAdapterProtocol[Any] | None
    session: Session
    deadline: Deadline | None
    resources: Resolver
    heartbeat: Heartbeat | None
    run_context: RunContext | None
    call_id: str | None
    tool_name: str | None
    idempotency_key: str | None
    _budget_tracker: BudgetTracker | None
    _source: ToolContext | None

    def __init__(  # noqa: PLR0917 - the documents' order
        self,
        prompt: PromptProtocol[Any] | None = None,
        rendered_prompt: RenderedPromptProtocol[Any] | None = None,
        adapter: ProviderAdapterProtocol[Any] | None = None,
        session: SessionProtocol | None = None,
        deadline: Deadline | None = None,
        budget_tracker: BudgetTracker | None = None,
        resources: Resolver | ResourceRegistry | None = None,
        heartbeat: Heartbeat | None = None,
        run_context: RunContext | None = None,
        *,
        call_id: str | None = None,
        tool_name: str | None = None,
        idempotency_key: str | None = None,
    ) -> None:
        if isinstance(resources, ResourceRegistry):
            resources = usable(resources)
        _set(self, "prompt", prompt)
        _set(self, "rendered_prompt", rendered_prompt)
        _set(self, "adapter", adapter)
        _set(self, "session", Session() if session is None else session)
        _set(self, "deadline", deadline)
        _set(self, "resources", _NO_RESOURCES if resources is None else resources)
        _set(self, "heartbeat", heartbeat)
        _set(self, "run_context", run_context)
        _set(self, "call_id", call_id)
        _set(self, "tool_name", tool_name)
        _set(self, "idempotency_key", idempotency_key)
        _set(self, "_budget_tracker", budget_tracker)
        _set(self, "_source", None)

    def __setattr__(self, name: str, value: object, /) -> None:
        raise AttributeError(f"ToolContext.{name} cannot be set; context.replace({name}=...) makes another context.")

    def __delattr__(self, name: str, /) -> None:
        raise AttributeError(f"ToolContext.{name} cannot be deleted.")

    def replace(self, **changes: Unpack[ContextChanges]) -> ToolContext:
        """Another context with some fields changed, for handing a call's context on to another handler.

        All else is this context's own, the handles of a running call included: they end with the call, and so does
        `beat`. TypeError for a field that does not exist.

        >>> context = ToolContext(call_id="call_1")
        >>> context.replace(tool_name="search")
        ToolContext(session=<Session ...: 0 slices>, call_id='call_1', tool_name='search')
        """
        unknown = sorted(changes.keys() - set(_FIELDS))
        if unknown:
            raise TypeError(f"ToolContext has no field {unknown[0]!r}. Its fields: {', '.join(_FIELDS)}.")
        kept: dict[str, Any] = {name: self._own(name) for name in _FIELDS if name not in changes}
        other = ToolContext(**kept, **changes)
        _set(other, "_source", self)
        return other

    __replace__ = replace  # for `copy.replace`, from Python 3.13 on

    def _own(self, name: str) -> Any:
        """A field as it was given: the tracker that is only bound goes with the resources."""
        return self._budget_tracker if name == "budget_tracker" else getattr(self, name)

    def __repr__(self) -> str:
        """Like a dataclass's, without the fields that are not set; long values are cut."""
        given = ((name, self._own(name)) for name in _FIELDS)
        shown = [f"{name}={_brief(value)}" for name, value in given if value is not None and value is not _NO_RESOURCES]
        return f"ToolContext({', '.join(shown)})"

    @property
    def filesystem(self) -> Filesystem | None:
        """The bound `Filesystem`, or None."""
        return self.resources.get(Filesystem, None)

    @property
    def budget_tracker(self) -> BudgetTracker | None:
        """The tracker it was given, or the bound one, or None."""
        return self._budget_tracker or self.resources.get(BudgetTracker, None)

    @property
    def fencing_token(self) -> int | None:
        """A number that rises each time an idempotent call is tried again, for services that refuse older ones."""
        return None if self._source is None else self._source.fencing_token

    def require_active(self) -> None:
        """Raise `StaleCallError` once the call is over: for a handler about to begin what cannot be undone.

        A write through the context checks the same. Does nothing on a context that was made by hand.
        """
        if self._source is not None:
            self._source.require_active()

    def beat(self) -> None:
        """Say that the work is alive, for leases to be extended; does nothing without a heartbeat or a ledger.

        Raises what a listener raises: a lost lease must not go unnoticed.
        """
        source = self._source
        if source is not None:
            source.beat()
        if self.heartbeat is not None and (source is None or self.heartbeat is not source.heartbeat):
            self.heartbeat.beat()


_FIELDS = tuple(annotations_of(ContextChanges))

_repr = Repr()
_repr.maxother = _repr.maxstring = 120
_brief = _repr.repr
