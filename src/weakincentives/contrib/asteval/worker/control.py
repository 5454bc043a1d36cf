"""The messages between host and worker on the control channel."""

from __future__ import annotations

import struct

READY = b"ready"
"""From the worker, once: it can be used."""

START = b"s"
"""To the worker, with the channel of an evaluation: have a process ready that waits there for a request."""

KILL = b"k"
"""To the worker: end that process, whatever it does."""

STATUS = struct.Struct("!i")
"""From the worker, for each `KILL`: how the process ended."""
