"""The `wink` command. Each module in `commands/` brings one subcommand."""

from .main import main

__all__ = ["main"]
