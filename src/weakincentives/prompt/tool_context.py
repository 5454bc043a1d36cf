"""What a handler may touch while its call runs."""

from __future__ import annotations

from reprlib import Repr
from threading import Lock
from typing import Any, NoReturn, TypedDict, Unpack, final

from ..budget import BudgetTracker
from ..deadlines import Deadline
from ..filesystem import Filesystem
from ..resources import Resolver, ResourceContext, ResourceRegistry, ToolScope
from ..run_context import Heartbeat, RunContext
from ..session import Session, SessionProtocol
from .protocols import PromptProtocol, ProviderAdapterProtocol, RenderedPromptProtocol

# The resources of a context that was made by hand, as a test makes one.


_MISSING: Any = object()


@final
class ContextResources:
    """A registry, opened when something is first asked for, as one call would see it.

    Nobody knows when the context is no longer needed: what was built stays open until `close`.
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


class ContextFields:
    """The fields while they can still be set. See `ToolContext.__new__`."""

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


class ToolContext(ContextFields):
    """Everything a handler may touch; made for one call and worthless after it.

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

    __slots__ = ()

    def __new__(  # noqa: PLR0917, PYI034 - the documents' order; nobody passes them by position
        cls,
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
    ) -> ToolContext:
        """Fill the fields, then close them."""
        # One is made for every call: a frozen dataclass takes three times as long as filling the fields and
        # closing the door behind them.
        self: Any = object.__new__(ContextFields)
        self.prompt = prompt
        self.rendered_prompt = rendered_prompt
        self.adapter = adapter
        self.session = Session() if session is None else session
        self.deadline = deadline
        if isinstance(resources, ResourceRegistry):
            resources = usable(resources)
        self.resources = _NO_RESOURCES if resources is None else resources
        self.heartbeat = heartbeat
        self.run_context = run_context
        self.call_id = call_id
        self.tool_name = tool_name
        self.idempotency_key = idempotency_key
        self._budget_tracker = budget_tracker
        self._source = None
        self.__class__ = cls
        return self

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"ToolContext.{name} cannot be set; context.replace({name}=...) makes another context.")

    def __delattr__(self, name: str) -> NoReturn:
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
        _set_source(other, self)
        return other

    __replace__ = replace  # for `copy.replace`, from Python 3.13 on

    def _own(self, name: str) -> Any:
        """A field as it was given: the tracker that is only bound goes with the resources."""
        return self._budget_tracker if name == "budget_tracker" else getattr(self, name)

    def __repr__(self) -> str:
        """As of a dataclass, without the fields that are not set; long values are cut."""
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


_FIELDS = (
    "prompt", "rendered_prompt", "adapter", "session", "deadline", "budget_tracker", "resources", "heartbeat",
    "run_context", "call_id", "tool_name", "idempotency_key",
)  # fmt: skip
_set_source = ContextFields.__dict__["_source"].__set__  # fields cannot be set from outside; this is the slot

_repr = Repr()
_repr.maxother = _repr.maxstring = 120
_brief = _repr.repr
