"""What suites that work with files share: pages, edits, diffs, copies in and out."""

from .diffs import unified
from .edits import EditRefusedError, apply_edit
from .mounts import HostMount, copy_in, export_files
from .pages import Page, is_binary, read_page
from .tracked import TrackedFilesystem, TrackedMemory

__all__ = [
    "EditRefusedError",
    "HostMount",
    "Page",
    "TrackedFilesystem",
    "TrackedMemory",
    "apply_edit",
    "copy_in",
    "export_files",
    "is_binary",
    "read_page",
    "unified",
]
