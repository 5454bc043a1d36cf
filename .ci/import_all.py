"""Import every module of the installed package; a missing extra is fine when the error names its pip command."""

import importlib
import pkgutil
import sys

import weakincentives

names = ["weakincentives"]
names += [m.name for m in pkgutil.walk_packages(weakincentives.__path__, "weakincentives.", onerror=lambda _: None)]
failed = 0
for name in names:
    if name.endswith(".__main__"):
        continue
    try:
        importlib.import_module(name)
    except ImportError as error:
        if "pip install 'weakincentives[" not in str(error):
            failed += 1
            print(f"{name}: {error!r}")
print(f"{len(names) - failed} modules imported from {weakincentives.__path__[0]}, {failed} failed")
sys.exit(1 if failed or len(names) < 10 else 0)
