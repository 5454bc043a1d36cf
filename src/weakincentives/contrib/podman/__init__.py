"""What a suite that works in containers stands on."""

from .image import DEFAULT_IMAGE, build_image, have_image

__all__ = ["DEFAULT_IMAGE", "build_image", "have_image"]
