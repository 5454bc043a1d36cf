"""What users' own tests can build on."""

from .escapes import ESCAPES
from .filesystem import FilesystemContract

__all__ = ["ESCAPES", "FilesystemContract"]
