"""`wink runs` and `wink show`: what is on record in a store, and one run of it, step by step."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from ...prompt.outline import SectionOutline
from ...runtime.record import RecordedRun, RunInfo, Step
from ...runtime.record.export import runs_inside
from ...runtime.record.resources import resource_rows
from ...runtime.record.secret_arguments import SecretArguments
from ...runtime.record.sql import SqlRunStore
from ..output import count, show, show_json, shown_line
from ..run_stores import existing_run, existing_store

_MAX_LINE = 100


def run_list(arguments: argparse.Namespace) -> int:
    """Print the runs, the one that was written to last first."""
    with existing_store(arguments.store, arguments.seal, reads=True) as store:
        return _list(store, arguments)


def run_show(arguments: argparse.Namespace) -> int:
    """Print the steps of a run, or one of them with everything that is on record of it."""
    with existing_store(arguments.store, arguments.seal, reads=True) as store:
        steps = () if arguments.step is None else (arguments.step,)
        return _show(existing_run(store, arguments.store, arguments.run_id, *steps), arguments)


def _list(store: SqlRunStore, arguments: argparse.Namespace) -> int:
    infos = [info for info in store.infos() if not arguments.interrupted or _may_go_on(info)]
    for info in infos:
        if arguments.json:
            show_json(_info_json(info))
        else:
            show(f"{_status(info):<11}  {_when(info.updated)}  {shown_line(info.run_id)}  {shown_line(info.loop)}")
    if not arguments.json:
        interrupted, inside = sum(map(_may_go_on, infos)), sum(info.is_inside for info in infos)
        agents = f" and {inside} of sub-agents" if inside else ""
        show(f"{count(len(infos) - inside, 'run')}{agents}, {interrupted} of them interrupted.")
        if any(info.interrupted and not info.is_conversation for info in infos):
            show("To go on with one: wink resume FILE RUN TARGET, or run its program again with the same run_id.")
    return 0


def _may_go_on(info: RunInfo) -> bool:
    """Whether it waits to be resumed; what is inside a call of another run goes on with that."""
    return info.interrupted and not info.is_inside


def _status(info: RunInfo) -> str:
    if info.is_conversation and info.status == "paused":
        return "open" if info.alive else "waiting"
    return "interrupted" if info.interrupted else info.status


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, tz=UTC).isoformat(sep=" ", timespec="seconds")


def _info_json(info: RunInfo) -> dict[str, Any]:
    return {
        "run_id": info.run_id, "status": _status(info), "loop": info.loop, "session_id": info.session_id,
        "created": _when(info.created), "updated": _when(info.updated), "owner": info.owner, "parent": info.parent,
        "forked_at": info.forked_at, "request": None if info.request is None else json.loads(info.request),
    }  # fmt: skip


def _show(run: RecordedRun, arguments: argparse.Namespace) -> int:
    secrets = SecretArguments(run)
    if arguments.step is not None:
        step = run.step(arguments.step)
        _show_step(run, replace(step, body=secrets.masked(step)), as_json=arguments.json)
        return 0
    for step in run.steps():
        if arguments.json:
            show_json(_step_json(replace(step, body=secrets.masked(step))))
        else:
            show(f"{step.seq:>5}  {step.kind:<8}  {_line(run, step)}".rstrip())
    if not arguments.json:
        show(f"Run {shown_line(run.info.run_id)}: {_status(run.info)}.")
        if run.not_resumable and run.info.interrupted:
            show(f"It cannot go on: {shown_line(run.not_resumable)}.")
        elif run.info.is_inside:
            show(f"It is inside a call of {shown_line(run.info.parent or '')}, and goes on with that.")
        inside = runs_inside(run.store.infos(), run.info.run_id)
        if inside:
            show(f"Sub-agents inside it: {', '.join(shown_line(info.run_id) for info in inside)}")
    return 0


def _line(run: RecordedRun, step: Step) -> str:
    body = step.body
    match step.kind:
        case "turn":
            names = ", ".join(shown_line(call[1]) for call in body["calls"])
            text = _first_line(body["text"])
            return f"{text}  -> {names}" if names else text
        case "call":
            native = " (native)" if body.get("native") else ""
            text = _first_line(run.text(body["text"]))
            return f"{shown_line(step.tool or '')}{native}: {step.outcome}, {step.duration * 1000:.0f} ms. {text}"
        case "started":
            return f"{shown_line(step.tool or '')} may have reached the world outside"
        case "prompt":
            length = len(run.text(body.get("system", ""))) + len(run.text(body["text"]))
            return f"{length} characters, {count(len(body['tools']), 'tool')}"
        case "end":
            return _first_line(str(body.get("message") or run.text(body.get("text", ""))))
        case "message":
            text = _first_line(run.text(body["text"]))
            return f"(meanwhile) {text}" if body.get("as") == "interjection" else text
        case _:
            return ""


def _first_line(text: str) -> str:
    return _short(shown_line(text.strip().partition("\n")[0]))


def _short(line: str) -> str:
    return line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]}..."


def _show_sections(sections: Iterable[SectionOutline], indent: str = "  ") -> None:
    for section in sections:
        tools = f": {', '.join(section.tools)}" if section.tools else ""
        name = shown_line(f"{section.key} ({section.title})")
        show(f"{indent}section {name}, {section.visibility}{shown_line(tools)}")
        _show_sections(section.children, f"{indent}  ")


def _show_step(run: RecordedRun, step: Step, *, as_json: bool) -> None:
    before = max(step.seq - 1, 1)
    changed = run.diff(before, step.seq)
    if as_json:
        slices = {name: {"before": old, "after": new} for name, (old, new) in changed.slices.items()}
        files = {"added": changed.files.added, "changed": changed.files.changed, "removed": changed.files.removed}
        show_json({**_step_json(step), "slices": slices, "files": files})
        return
    show(f"Step {step.seq} of {shown_line(run.info.run_id)}: {step.kind}")
    if step.kind == "call":
        took = f"{step.outcome}, {step.duration * 1000:.1f} ms"
        show(f"  {shown_line(step.tool or '')}: {took}, call {shown_line(step.call_id or '')}")
    system = step.body.get("system")
    if system:
        show("  The system says:")
        show("\n".join(f"  {line}" for line in run.text(system).splitlines()))
        show("  The user says:")
    text = step.body.get("text")
    if text:
        show("\n".join(f"  {line}" for line in run.text(text).splitlines()))
    if step.kind == "prompt":
        prompt = run.prompt_at(step.seq)
        _show_sections(() if prompt is None else prompt.sections)
    for call in step.body.get("calls", ()):
        show(f"  calls {shown_line(call[1])} {shown_line(_as_text(call[2]))}")
    for name, (old, new) in changed.slices.items():
        show(f"  state {shown_line(name)}: {len(old)} -> {len(new)} items")
    for name, what, data in resource_rows(step):
        said = what if data is None else f"{what} {_as_text(data)}"
        show(f"  resource {shown_line(name)}: {_short(shown_line(said))}")
    for what, paths in (("added", changed.files.added), ("changed", changed.files.changed),
                        ("removed", changed.files.removed)):  # fmt: skip
        for path in paths:
            show(f"  {what} {shown_line(path)}")


def _as_text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def _step_json(step: Step) -> dict[str, Any]:
    return {
        "seq": step.seq, "kind": step.kind, "turn": step.turn, "call_id": step.call_id, "tool": step.tool,
        "outcome": step.outcome, "started": step.started, "duration": step.duration,
        "input_tokens": step.input_tokens, "output_tokens": step.output_tokens, "body": step.body,
    }  # fmt: skip
