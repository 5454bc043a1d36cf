"""The `wink` command. Each module in `commands/` carries out one subcommand."""

from .main import main

__all__ = ["main"]
