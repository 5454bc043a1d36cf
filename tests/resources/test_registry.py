"""What can be bound, and what is refused before anything is built."""

from __future__ import annotations

from typing import Any, NewType, Protocol, runtime_checkable

import pytest

from weakincentives.errors import DuplicateBindingError, ResourcesClosedError, UnboundResourceError
from weakincentives.resources import Binding, ResourceRegistry, Scope


class Config:
    def __init__(self, secret: str = "hunter2") -> None:
        self.secret = secret

    def __repr__(self) -> str:
        return self.secret


class Client: ...


class SpecialClient(Client): ...


class Plain(Protocol):
    def ping(self) -> str: ...


@runtime_checkable
class Checkable(Protocol):
    def ping(self) -> str: ...
    def pong(self) -> str: ...


class Pinger:
    def ping(self) -> str:
        return "ping"


def test_an_empty_registry_needs_no_arguments() -> None:
    """`ResourceRegistry()` binds nothing, is empty, and opens."""
    registry = ResourceRegistry()
    assert len(registry) == 0
    assert list(registry) == []
    assert Config not in registry
    with registry.open() as ctx:
        assert ctx.get(Config, None) is None


def test_given_instances_are_had_from_an_unopened_registry() -> None:
    """`registry.get` gives back what was handed in, without opening anything."""
    config = Config()
    for registry in (ResourceRegistry.build({Config: config}), ResourceRegistry.of(Binding.instance(Config, config))):
        assert registry.get(Config) is config
        assert registry.get(Config, None) is config
        assert Config in registry
        assert list(registry) == [Config]
        assert len(registry) == 1


def test_a_default_is_returned_only_when_nothing_is_bound() -> None:
    """`get(T, default)` returns the default for an unbound type, also None, and not for one that needs `open()`."""
    registry = ResourceRegistry.of(Binding(Config, lambda r: Config()))
    assert registry.get(Client, None) is None
    assert registry.get(Client, default=3) == 3
    with pytest.raises(UnboundResourceError, match="Nothing is bound for Client"):
        registry.get(Client)
    with pytest.raises(ResourcesClosedError, match=r"with registry\.open\(\) as ctx: ctx\.get\(Config\)"):
        registry.get(Config, None)


def test_a_mapping_takes_instances_and_bindings() -> None:
    """`build` tells bindings from instances, and `binding` shows what was made of them."""
    config = Config()
    lazy = Binding(Client, lambda r: Client(), scope=Scope.TOOL_CALL)
    registry = ResourceRegistry.build({Config: config, Client: lazy})
    assert registry.binding(Client) is lazy
    given = registry.binding(Config)
    assert given is not None
    assert given.given
    assert registry.binding(Pinger) is None


def test_a_binding_under_another_key_is_refused() -> None:
    """A mapping key and its binding's type must be the same, and the error names both."""
    with pytest.raises(TypeError, match=r"key Client has a binding of Config.*Binding\(Client"):
        ResourceRegistry.build({Client: Binding(Config, lambda r: Config())})


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (Config, Client(), "Config was given an instance of Client: pass an instance of Config"),
        (Config, Config, r"the class Config: pass an instance, or Binding\(Config, lambda r: Config\(...\)\)"),
        (Config, None, "Config was given None: leave the key out"),
        (Plain, None, "Plain was given None"),
        (Checkable, Pinger(), "Pinger lacks pong"),
        (SpecialClient, Client(), "SpecialClient was given an instance of Client"),
    ],
)
def test_an_instance_must_be_of_its_key(key: Any, value: object, message: str) -> None:
    """An instance that is none of its key's type is refused with the fix, however it is bound."""
    with pytest.raises(TypeError, match=message):
        ResourceRegistry.build({key: value})
    with pytest.raises(TypeError, match=message):
        Binding.instance(key, value)


def test_what_python_cannot_check_is_believed() -> None:
    """A protocol that is not runtime-checkable, a generic alias and a NewType are accepted as keys."""
    url = NewType("url", str)
    pinger, numbers = Pinger(), [1, 2]
    bindings: dict[Any, object] = {Plain: pinger, list[int]: numbers, url: "https://example.com"}
    registry = ResourceRegistry.build(bindings)
    assert registry.get(Plain) is pinger
    assert registry.get(list[int]) is numbers
    assert [registry.get(key) for key in bindings] == list(bindings.values())


@pytest.mark.parametrize("key", ["Config", 3, None, Config()])
def test_a_key_must_be_a_type(key: Any) -> None:
    """Text, numbers and instances are refused as keys."""
    with pytest.raises(TypeError, match="bound to types"):
        Binding(key, lambda r: r)
    with pytest.raises(TypeError, match="bound to types"):
        ResourceRegistry.build({key: 1})


def test_a_binding_checks_its_arguments() -> None:
    """A provider that cannot be called, a scope that is none and an eager prototype are refused at once."""
    config: Any = Config()
    scope: Any = "singleton"
    with pytest.raises(TypeError, match=r"must be callable, got Config. For an instance use Binding\.instance\(Config"):
        Binding(Config, config)
    with pytest.raises(TypeError, match=r"Scope\.SINGLETON"):
        Binding(Config, lambda r: Config(), scope=scope)
    with pytest.raises(ValueError, match=r"PROTOTYPE.*cannot be eager"):
        Binding(Config, lambda r: Config(), scope=Scope.PROTOTYPE, eager=True)
    with pytest.raises(TypeError, match=r"takes bindings, got Config.*ResourceRegistry\.build"):
        ResourceRegistry.of(config)


def test_a_binding_may_name_its_type_parameter() -> None:
    """`Binding[T](T, ...)` is the same as `Binding(T, ...)`, and neither can be changed."""
    binding = Binding[Client](Client, lambda r: SpecialClient())
    assert binding.resource_type is Client
    with pytest.raises(AttributeError):
        binding.eager = True  # type: ignore[misc]


def test_a_type_is_bound_once() -> None:
    """Two bindings for one type in `of` are a `DuplicateBindingError` that names it."""
    with pytest.raises(DuplicateBindingError, match="Config is bound twice"):
        ResourceRegistry.of(Binding(Config, lambda r: Config()), Binding.instance(Config, Config()))


def test_merging_lets_the_other_win() -> None:
    """`merge` gives a new registry with both sides' types, the other's binding winning, both inputs unchanged."""
    mine, yours = Config("mine"), Config("yours")
    left = ResourceRegistry.build({Config: mine, Client: Client()})
    right = ResourceRegistry.build({Config: yours, Pinger: Pinger()})
    merged = left.merge(right)
    assert merged.get(Config) is yours
    assert list(merged) == [Config, Client, Pinger]
    assert left.get(Config) is mine
    assert len(left) == len(right) == 2


def test_strict_merging_refuses_what_both_bind() -> None:
    """`merge(strict=True)` raises for a type bound on both sides, unless it is the very same binding."""
    shared = Binding(Client, lambda r: Client())
    left = ResourceRegistry.of(shared, Binding.instance(Config, Config()))
    with pytest.raises(DuplicateBindingError, match="Config is bound twice"):
        left.merge(ResourceRegistry.build({Config: Config()}), strict=True)
    assert len(left.merge(ResourceRegistry.of(shared), strict=True)) == 2


def test_reprs_show_no_values() -> None:
    """Neither a registry's nor a binding's repr shows an instance, which may hold credentials."""
    registry = ResourceRegistry.of(
        Binding.instance(Config, Config("hunter2")),
        Binding(Client, lambda r: Client(), scope=Scope.TOOL_CALL, eager=True),
    )
    shown = f"{registry!r} {registry.binding(Config)!r} {registry.binding(Client)!r}"
    assert "hunter2" not in shown
    assert shown == (
        "ResourceRegistry(Config, Client) Binding.instance(Config, ...) Binding(Client, scope=TOOL_CALL, eager=True)"
    )


@pytest.mark.parametrize(
    ("bound", "hint"),
    [
        ({}, "No resources are bound at all."),
        (
            {SpecialClient: SpecialClient()},
            "related to it: SpecialClient. Keys match exactly, so bind one of them as Client",
        ),
        ({Config: Config(), Pinger: Pinger()}, "Bound: Config, Pinger."),
        ({type("Clients", (), {}): None}, "Bound: Clients."),
        (
            {type("Client", (), {"__module__": "elsewhere"}): None},
            "Another type of that name is bound: elsewhere.Client",
        ),
    ],
)
def test_the_unbound_error_says_what_is_near(bound: dict[type[Any], Any], hint: str) -> None:
    """The error for an unbound type says how to bind it and which bound types may have been meant."""
    registry = ResourceRegistry.build({key: value if value is not None else key() for key, value in bound.items()})
    with pytest.raises(UnboundResourceError) as caught:
        registry.get(Client)
    text = str(caught.value)
    assert hint in text
    assert "Binding(Client, lambda r: ...)" in text
    assert "Binding.instance(Client, value)" in text
    assert "resources={Client: value}" in text
    assert text.isascii()
    assert isinstance(caught.value, LookupError)
