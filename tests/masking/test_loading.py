"""What most programs never use is not loaded with the package."""

from __future__ import annotations

import subprocess
import sys

import pytest

_MASKING = ["masking.names", "masking.places", "masking.prefixes", "masking.judgement"]
LATER = [*_MASKING, "filesystem.search.pattern_syntax", "filesystem.disk.filesystem"]
PROGRAM = f"""
import sys
import weakincentives
for name in weakincentives.__all__:
    getattr(weakincentives, name)
loaded = [name for name in {LATER!r} if f"weakincentives.{{name}}" in sys.modules]
assert not loaded, loaded

from weakincentives.filesystem import HostFilesystem, InMemoryFilesystem
from weakincentives.masking import redact
files = InMemoryFilesystem()
files.write("a", "hello")
assert [match.path for match in files.grep("hel+o")] == ["a"]
assert redact("password=hunter2") == "password=[masked]"
missing = [name for name in {LATER!r} if f"weakincentives.{{name}}" not in sys.modules]
assert not missing, missing
"""


@pytest.mark.slow  # an interpreter
def test_rules_patterns_and_undo_on_disk_are_loaded_on_first_use() -> None:
    """Every public name of the root can be had without them; the first use loads them."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
