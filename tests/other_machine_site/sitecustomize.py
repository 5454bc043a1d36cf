"""Loaded by every Python that a test under `tests.other_machine` starts, so that it is on that machine, too."""

from __future__ import annotations

import tests.other_machine  # noqa: F401 # pyright: ignore[reportUnusedImport]
