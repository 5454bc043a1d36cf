"""The main job in small: an agent that repairs a broken project, and a check that it did."""

from .play import Played, play

__all__ = ["Played", "play"]
