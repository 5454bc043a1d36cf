"""The calculator survives everything that tries to get out of it, with bubblewrap and without."""

from __future__ import annotations

import shutil

from tests.conftest import needs

from weakincentives.contrib.evaluation import AstevalBackend, EvalBackend
from weakincentives.testing import EvalEscapes


class TestInBubblewrap(EvalEscapes):
    def make(self) -> EvalBackend:
        needs("bwrap", present=shutil.which("bwrap") is not None, install="apt-get install bubblewrap")
        return AstevalBackend(bubblewrap="required")


class TestWithLimitsOnly(EvalEscapes):
    def make(self) -> EvalBackend:
        return AstevalBackend(bubblewrap="never")
