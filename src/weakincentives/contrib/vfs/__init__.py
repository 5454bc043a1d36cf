"""The file suite: tools to read, search, write and edit files."""

from .section import HostMount, VfsConfig, VfsToolsSection

__all__ = ["HostMount", "VfsConfig", "VfsToolsSection"]
