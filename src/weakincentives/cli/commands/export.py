"""`wink export`: one run of a store as one file."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...prompt import Tool
from ...runtime.record import export_run
from ...runtime.record.export import runs_inside
from ...runtime.record.sql import SqlRunStore
from ..loading import load, prompt_and_session
from ..output import UsageError, count, existing_directory, show, show_json, shown_line
from ..run_stores import existing_run, existing_store


def run(arguments: argparse.Namespace) -> int:
    """Write the file; it is there as a whole or not at all."""
    _check_output(Path(arguments.output), Path(arguments.store))
    try:
        with existing_store(arguments.store, arguments.seal, reads=True) as store:
            existing_run(store, arguments.store, arguments.run_id)
            inside = len(runs_inside(store.infos(), arguments.run_id))
            made = export_run(
                store,
                arguments.run_id,
                arguments.output,
                masked=not arguments.unmasked,
                tools=_tools(store, arguments),
                overwrite=arguments.force,
            )
    except FileExistsError:
        raise UsageError(f"there is a file {arguments.output} already; --force replaces it") from None
    if arguments.json:
        masked = not arguments.unmasked
        show_json({"run_id": arguments.run_id, "file": str(made), "masked": masked, "inside": inside})
    else:
        how = "as it is: it is as secret as the store" if arguments.unmasked else "with credentials masked"
        agents = f", with {count(inside, 'run')} of sub-agents" if inside else ""
        show(f"Wrote {shown_line(arguments.run_id)}{agents} to {made}, {how}.")
        if arguments.seal is not None:
            show("The file is not sealed: everyone who has it can read it.")
    return 0


def _check_output(output: Path, store: Path) -> None:
    existing_directory(output.parent, "-o: ")
    if output.is_dir():
        raise UsageError(f"-o: {output} is a directory; name a file")
    if output.exists() and store.exists() and output.samefile(store):
        raise UsageError(f"-o: {output} is the store itself; name another file")


def _tools(store: SqlRunStore, arguments: argparse.Namespace) -> Sequence[Tool[Any, Any]]:
    """The tools of the program, which know their secret fields; none when no program is named."""
    if arguments.app is None:
        return ()
    info = store.info(arguments.run_id)
    prompt, _ = prompt_and_session(load(arguments.app), None if info is None else info.request)
    return prompt.tools()
