"""A digest of a workspace: an outline for a model that has to find its way around."""

from .build import DigestSource, Improve, build_digest, refresh_digest
from .digest import DigestConfig, WorkspaceDigest
from .section import WorkspaceDigestSection

__all__ = [
    "DigestConfig",
    "DigestSource",
    "Improve",
    "WorkspaceDigest",
    "WorkspaceDigestSection",
    "build_digest",
    "refresh_digest",
]
