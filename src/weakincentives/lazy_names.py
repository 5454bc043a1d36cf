"""Names of a package that are found on first use: importing it does not import what few programs need."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

FindName = Callable[[str], Any]
"""What finds a name of a package, as its `__getattr__`."""


def lazy_names(package: str, homes: Mapping[str, str], otherwise: FindName) -> FindName:
    """A `__getattr__` for a package: `homes` maps a module, relative to the package, to the names it has.

    A name is looked up once and then stored in the package. `otherwise` is asked for all others; the user's code is
    three calls up from there. `dir()` of the package lists them too, for completion in a terminal.
    """
    home_of = {name: module for module, names in homes.items() for name in names.split()}
    found = vars(sys.modules[package])
    found["__dir__"] = lambda: sorted({*found, *home_of})

    def look_up(name: str) -> Any:
        home = home_of.get(name)
        if home is None:
            return otherwise(name)
        value = getattr(import_module(home, package), name)
        found[name] = value
        return value

    return look_up
