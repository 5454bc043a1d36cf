"""Tool suites: each a section with instructions, tools, policies and the resources they need."""

from .python import PythonConfig, PythonSection
from .vfs import VfsToolsSection
from .vfs_config import HostMount, VfsConfig

__all__ = ["HostMount", "PythonConfig", "PythonSection", "VfsConfig", "VfsToolsSection"]
