"""The older import path of the progress events; they live in `weakincentives.runtime.progress`."""

from ..runtime.progress import *  # noqa: F403 - all of it, under one more path
