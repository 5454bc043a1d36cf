"""`wink tools TARGET`: the tools a model would be offered, with their schemas."""

from __future__ import annotations

import argparse

from ..output import Subcommands, json_text, show, show_json


def register(subcommands: Subcommands) -> None:
    """Add the subcommand."""
    parser = subcommands.add_parser("tools", help="print an agent's tools and their schemas")
    parser.add_argument("target", metavar="PATH_OR_MODULE[:NAME]", help="a MainLoop, PromptTemplate or Prompt")
    parser.add_argument("--request", metavar="JSON", help="the request, where the tools depend on it; - reads it")
    parser.add_argument("--json", action="store_true", help="print one JSON array")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the tools. Where they depend on the request, `WrongUseError` asks for one."""
    from ..loading import load  # noqa: PLC0415 - see `main.build_parser`
    from ..offered import offered_tools  # noqa: PLC0415
    from ..requests import read_request  # noqa: PLC0415

    prompt, specs = offered_tools(load(arguments.target), read_request(arguments.request))
    if arguments.json:
        show_json([spec._asdict() for spec in specs], indent=2)
        return 0
    for spec in specs:
        show(f"{spec.name}{'  (read-only)' if spec.read_only else ''}")
        show("\n".join(f"  {line}".rstrip() for line in spec.text.splitlines()))
        policies = ", ".join(type(policy).__name__ for policy in prompt.policies_for(spec.name))
        if policies:
            show(f"  policies: {policies}")
        show("\n".join(f"    {line}" for line in json_text(spec.schema, indent=2).splitlines()))
        show()
    show(f"{len(specs)} {'tool' if len(specs) == 1 else 'tools'} of the prompt {prompt.name!r}")
    return 0
