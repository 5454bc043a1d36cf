"""Containers for tool suites: the Podman suite, and what it is built on."""

from .backend import ContainerBackend
from .container import Container
from .image import DEFAULT_IMAGE, build_image, have_image
from .spec import ContainerSpec

__all__ = ["DEFAULT_IMAGE", "Container", "ContainerBackend", "ContainerSpec", "build_image", "have_image"]
