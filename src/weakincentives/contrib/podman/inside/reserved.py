"""The names that nothing in a workspace may have. In the container this module is the file that it imports from."""

from __future__ import annotations

from ....filesystem.reserved import reserved

__all__ = ["reserved"]
