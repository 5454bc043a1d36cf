"""From a type to a resource: find it, wait for the thread that builds it, or build it.

Written once as coroutines, run with either way of waiting. A resource is built by exactly one thread or task;
the others wait for it, and try again themselves when it failed, for a failure is never kept.
"""

from __future__ import annotations

from collections.abc import Awaitable
from inspect import isawaitable, iscoroutine
from typing import Any, TypeVar, final

from ..errors import ProviderError, ResourceError, ResourceScopeError, UnboundResourceError
from ..event_loop import running_loop
from ..interrupts import current_shield, shielded
from ..waiting import Waiting, awaiting_here, blocking_here, close_unbegun, drive
from .binding import Binding, Scope, fits, name_of, unbound_text
from .lifetime import (
    Build,
    Lifetime,
    Owned,
    current_build,
    end,
    own_methods,
    refuse_deadlock,
    refuse_repeat,
    runs_on,
    set_current,
)

T = TypeVar("T")
MISSING: Any = object()


def get_blocking(life: Lifetime, wanted: Any, default: Any, asker: Build | None = None) -> Any:
    """The resource, for sync code."""
    binding = _binding_of(life, wanted, default, asker)
    if binding is None:
        return default
    with shielded():  # a build that is interrupted between two steps would keep those who wait for it waiting
        return drive(_obtain(life, binding, asker or current_build(), blocking_here()))


async def get_awaiting(life: Lifetime, wanted: Any, default: Any, asker: Build | None = None) -> Any:
    """The resource, for async code; also for a coroutine that is run without any event loop."""
    if running_loop() is None:
        return get_blocking(life, wanted, default, asker)
    binding = _binding_of(life, wanted, default, asker)
    if binding is None:
        return default
    return await _obtain(life, binding, asker or current_build(), awaiting_here())


@final
class BuildResolver:
    """What a provider gets its own needs from.

    It knows for whom it asks, so circles are seen. A provider may keep it: afterwards it is a plain resolver of the
    scope that the resource lives in, and is over with it.
    """

    __slots__ = ("_build", "_life")

    def __init__(self, build: Build, life: Lifetime) -> None:
        self._build = build
        self._life = life

    def get(self, resource_type: type[Any], /, default: Any = MISSING) -> Any:
        """See `Resolver.get`."""
        found = self._life.find(resource_type, MISSING)
        return found if found is not MISSING else get_blocking(self._life, resource_type, default, self._asker())

    async def aget(self, resource_type: type[Any], /, default: Any = MISSING) -> Any:
        """See `Resolver.aget`."""
        found = self._life.find(resource_type, MISSING)
        return found if found is not MISSING else await get_awaiting(self._life, resource_type, default, self._asker())

    def __contains__(self, resource_type: object, /) -> bool:
        return resource_type in self._life.ready or resource_type in self._life.root.bindings

    def _asker(self) -> Build | None:
        return None if self._build.finished else self._build


def _binding_of(life: Lifetime, wanted: Any, default: Any, asker: Build | None) -> Binding[Any] | None:
    life.check_open()
    bindings = life.root.bindings
    binding = bindings.get(wanted)
    if binding is None and default is MISSING:
        asker = asker or current_build()
        raise UnboundResourceError(unbound_text(wanted, bindings, asker.path() if asker else None))
    return binding


async def _obtain(life: Lifetime, binding: Binding[Any], asker: Build | None, waiting: Waiting) -> Any:
    if asker is not None:
        refuse_repeat(asker, binding)
    home = _home_of(life, binding, asker)
    if binding.scope is Scope.PROTOTYPE:
        return await _construct(Build(binding, asker, running_loop()), home, waiting)
    while True:
        with life.root.lock:
            home.check_open()
            found = home.ready.get(binding.resource_type, MISSING)
            if found is not MISSING:
                return found
            other = home.building.get(binding.resource_type)
            if other is None:
                build = home.building[binding.resource_type] = Build(binding, asker, running_loop())
                break
            _refuse_endless(asker, other, waiting)
            done = other.done()
            if asker is not None:
                asker.asks.append(other)
        try:
            await waiting.until(done)
        finally:
            if asker is not None:
                asker.asks.remove(other)
    return await _construct(build, home, waiting)


def _home_of(life: Lifetime, binding: Binding[Any], asker: Build | None) -> Lifetime:
    """Where the resource lives; refuses one that would be gone before the one that needs it."""
    if binding.scope is Scope.SINGLETON:
        return life.root
    if binding.scope is Scope.PROTOTYPE or not life.is_root:
        return life
    name = name_of(binding.resource_type)
    if asker is None:
        raise ResourceScopeError(
            f"{name} is a TOOL_CALL resource, so it lives in a tool scope: "
            f"`with ctx.tool_scope() as scope: scope.get({name})`."
        )
    holder = name_of(asker.chain()[0].binding.resource_type)
    raise ResourceScopeError(
        f"{holder} asks for the TOOL_CALL resource {name} ({asker.path()} -> {name}) but would outlive it. "
        f"Bind {holder} with scope=Scope.TOOL_CALL, or {name} with scope=Scope.SINGLETON."
    )


def _refuse_endless(asker: Build | None, other: Build, waiting: Waiting) -> None:
    refuse_deadlock(asker, other)
    loop = running_loop()
    if loop is not None and not waiting.in_loop and runs_on(other, loop):
        name = name_of(other.binding.resource_type)
        raise ResourceError(
            f"{name} is being built by another task of the event loop that is running here, so a plain get would "
            f"wait for ever. Use `await resources.aget({name})`."
        )


async def _construct(build: Build, home: Lifetime, waiting: Waiting) -> Any:
    """Run the provider and share the result; one that cannot be shared is closed."""
    try:
        value = await _provide(build, home, waiting)
        alias = _is_alias(value, build, home)
        try:
            _check(value, build)
            build.methods = own_methods(value)
            if not alias:
                await _post_construct(value, build, home, waiting)
            with home.root.lock:
                home.admit(value, build, alias=alias)
        except BaseException:
            if not alias:
                await _abandon(value, build, home, waiting)
            raise
        if build.parent is not None:
            build.parent.received.append(value)
        return value
    finally:
        with home.root.lock:
            if home.building.get(build.binding.resource_type) is build:
                del home.building[build.binding.resource_type]
            done = build.finish()
        if done is not None:
            done.set_result(None)


def _call_provider(build: Build, home: Lifetime) -> Any:
    """Providers are users' code: an interrupt reaches them at once."""
    shield, resolver = current_shield(), BuildResolver(build, home)
    depth = shield.depth
    try:
        while shield.noted:
            shield.deliver()
        shield.depth = 0
        return build.binding.provider(resolver)
    finally:
        shield.depth = depth


async def _provide(build: Build, home: Lifetime, waiting: Waiting) -> Any:
    before = set_current(build)
    try:
        value = _call_provider(build, home)
        if iscoroutine(value) or (isawaitable(value) and not fits(value, build.binding.resource_type)):
            value = await _finish(value, build, home, "provider", waiting)
    except ResourceError:
        raise  # of something it needs; its text has the whole path
    except Exception as error:
        home.check_open()
        raise _failure(build, f"The provider of {{}} raised {type(error).__name__}: {error}") from error
    finally:
        set_current(before)
    return value


async def _post_construct(value: Any, build: Build, home: Lifetime, waiting: Waiting) -> None:
    if "post_construct" not in build.methods:
        return
    before = set_current(build)
    try:
        result = value.post_construct()
        if isawaitable(result):
            await _finish(result, build, home, "post_construct()", waiting)
    except ResourceError:
        raise
    except Exception as error:
        home.check_open()
        raise _failure(build, f"post_construct() of {{}} raised {type(error).__name__}: {error}") from error
    finally:
        set_current(before)


async def _finish(pending: Awaitable[T], build: Build, home: Lifetime, step: str, waiting: Waiting) -> T:
    what = f"The {step} of {name_of(build.binding.resource_type)}"
    event_loop = home.root.event_loop
    try:
        build.loop = waiting.resource_loop(event_loop, what)
    except ResourceError:
        close_unbegun(pending)
        raise
    return await waiting.finish_on(build.loop, pending, event_loop, what)


def _check(value: object, build: Build) -> None:
    wanted = build.binding.resource_type
    if not fits(value, wanted):
        got = "None" if value is None else f"an instance of {type(value).__name__}"
        raise _failure(build, f"The provider of {{}} returned {got}, which is not a {name_of(wanted)}")


def _failure(build: Build, template: str) -> ProviderError:
    chain = build.chain()
    needed = f" (needed by {build.parent.path()})" if build.parent is not None and len(chain) > 1 else ""
    return ProviderError(template.replace("{}", name_of(build.binding.resource_type) + needed, 1) + ".")


def _is_alias(value: object, build: Build, home: Lifetime) -> bool:
    """Whether the provider passed on what is another binding's, or an override: not ours to begin or end."""
    if id(value) in home.root.ids:
        return True
    others = build.received if home.is_root else [*build.received, *home.ready.values()]
    return any(value is other for other in others) if others else False


async def _abandon(value: object, build: Build, home: Lifetime, waiting: Waiting) -> None:
    owned = Owned(value, build.binding.resource_type, 0, build.loop, closing=True, snapshotable=False)
    await end(home.root, [owned], waiting)
