"""One module a subcommand; see `main.build_parser` for what a module defines."""
