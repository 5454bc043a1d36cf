"""`wink demo`: what WINK does with an agent's calls, offline."""

from __future__ import annotations

import argparse
from importlib import import_module

SUBJECTS = {
    "arguments": "Arguments are checked before the handler",
    "deployment": "The prompt is the agent: sections carry instructions, tools and policies",
}


def register(subcommands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:  # pyright: ignore[reportPrivateUsage] # argparse has no public name for it
    """Add the subcommand."""
    parser = subcommands.add_parser("demo", help="show what happens to an agent's calls, offline")
    parser.add_argument("subject", nargs="?", choices=sorted(SUBJECTS), help="only this part")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Show one subject, or all of them; 1 when a demonstration does not go as it should."""
    subjects = [arguments.subject] if arguments.subject else list(SUBJECTS)
    for number, subject in enumerate(subjects, 1):
        title = f"{number}. {SUBJECTS[subject]}"
        print(f"{title}\n{'=' * len(title)}\n")
        try:
            print(import_module(f"weakincentives._demo.{subject}").show())
        except AssertionError as error:
            print(f"wink demo: this should not happen: {error}")
            return 1
        print()
    print("Next: read docs/, or run `make test`.")
    return 0
