"""Import paths of earlier releases: they work until 1.0, with a `DeprecationWarning` that names the new one."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

_ROOT = __name__.partition(".")[0]

FormerNames = Callable[[str], Any]
"""What finds a name of an earlier release, as the `__getattr__` of a package."""

FORMER_NAMES: dict[str, Mapping[str, str]] = {}
"""The tables given to `former_names`, by package."""


def former_names(package: str, homes: Mapping[str, str], *, stacklevel: int = 2) -> FormerNames:
    """A `__getattr__` for a package: `homes` maps each name it no longer exports to the module that has it.

    Modules are named without `weakincentives.`; `"runtime.ledger:EffectState"` also says what the name is now. The
    value is not stored in the package, so that each program that uses the old path is told: the warning names the
    line that is `stacklevel` calls up.
    """
    FORMER_NAMES[package] = homes

    def look_up(name: str) -> Any:
        home, _, renamed = homes.get(name, "").partition(":")
        if not home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, present = f"{_ROOT}.{home}", renamed or name
        warnings.warn(
            f"{package}.{name} goes away in 1.0. Import {present} from {module}.",
            DeprecationWarning,
            stacklevel=stacklevel,
        )
        return getattr(import_module(module), present)

    return look_up
