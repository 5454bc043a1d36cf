"""What suites that work with files share: pages, edits, diffs, copies in and out."""

from .diffs import unified
from .edits import EditRefusedError, replaced
from .mounts import HostMount, copy_in, export_files
from .pages import Page, is_binary, read_page
from .tracked import TrackedFilesystem, TrackedMemory

__all__ = [
    "EditRefusedError",
    "HostMount",
    "Page",
    "TrackedFilesystem",
    "TrackedMemory",
    "copy_in",
    "export_files",
    "is_binary",
    "read_page",
    "replaced",
    "unified",
]
