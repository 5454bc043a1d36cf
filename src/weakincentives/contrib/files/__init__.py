"""What suites that work with files share: pages, edits, diffs, copies in and out."""

from .diffs import unified
from .edits import EditRefusedError, replaced
from .export import export_files
from .mounts import HostMount, copy_in
from .originals import TrackedFilesystem, TrackedMemory
from .pages import Page, is_binary, read_page

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
