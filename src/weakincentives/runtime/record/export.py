"""One run as one file, to be sent or kept beside the tests; credentials are masked on the way out."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast, final

from ...errors import RecordError
from ...masking import masked_data, redact
from ...private_files import ensure_private
from ...prompt.tool import Tool
from ...serde.secret_fields import has_secrets, without_secrets
from .large_items import LargeItems
from .protocol import RunStore
from .reading import RecordedRun
from .rows import CONVERSATION, FileStep, NewRows, NewRun, RunInfo, Step, digest_of
from .seals import Seal
from .secret_arguments import SecretArguments
from .sqlite import SqliteRunStore

MASKED_TAG = "wink.masked"
"""The tag of a run that was masked when it was exported: the number of rows in which there was something to mask."""

_ROWS_AT_ONCE = 200

RowT = TypeVar("RowT", Step, FileStep)
Blobs = Callable[[list[Step], list[FileStep]], Mapping[str, bytes]]


def export_run(
    store: RunStore,
    run_id: str,
    path: str | os.PathLike[str],
    *,
    masked: bool = True,
    tools: Iterable[Tool[Any, Any]] = (),
    overwrite: bool = False,
    seal: Seal | None = None,
) -> Path:
    """Write one run with everything that it refers to into a file of its own; `SqliteRunStore(path)` opens it.

    The runs of sub-agents inside it are in the file as well, under the ids that they have.
    The file of a run in a sealed store is NOT sealed unless `seal` is given: everyone who gets it can read it. It is
    readable by its owner alone. It is written beside its place and then put there, so it is there as a whole or not at
    all.

    Args:
        store: where the run is.
        run_id: which run.
        path: the file, by custom `NAME.wink`.
        masked: mask credentials in everything that was said, changed or written, as WINK does wherever text leaves the
            process. A masked argument is what the handlers of a replay get, so such a call may end differently there;
            False writes the run as it is, for places where it is as safe as the store.
        tools: the tools of the program, for older records: newer ones say themselves which params are secret
            (`SecretStr`), and these are masked too.
        overwrite: replace a file that is there.
        seal: what to seal the file with; it need not be the seal of the store.

    Raises `RecordError` for an unknown run and for a file that is the store itself or in use, `FileExistsError` for
    one that is there; then nothing was written.
    """
    info = store.info(run_id)
    if info is None:
        raise RecordError(f"There is no run {run_id!r} in this store.")
    return write_run(store, info, path, masked=masked, tools=tools, overwrite=overwrite, seal=seal)


def write_run(
    store: RunStore,
    info: RunInfo,
    path: str | os.PathLike[str],
    *,
    masked: bool,
    tools: Iterable[Tool[Any, Any]] = (),
    overwrite: bool = False,
    seal: Seal | None = None,
    inside: RunStore | None = None,
) -> Path:
    """`export_run`, with what is said of the run itself given; its rows are those of the store.

    The runs inside it are those of the store `inside`, if that is another one.
    """
    target = Path(path)
    if not overwrite and target.exists():
        raise FileExistsError(f"There is a file {target} already; pass overwrite=True to replace it.")
    _check_replaceable(target, store)
    folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        made = folder / "run.wink"
        around = store if inside is None else inside
        sources = [(store, info), *((around, one) for one in runs_inside(around.infos(), info.run_id))]
        # One file, whatever its size.
        with SqliteRunStore(made, max_file=sys.maxsize, max_inline=sys.maxsize, seal=seal) as copy:
            for source, one in sources:
                _copy(source, one, copy, _Masking(source, one, tools) if masked else None)
        _finish(made, [one for _, one in sources])
        _place(made, target, overwrite=overwrite)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return target


def runs_inside(infos: Iterable[RunInfo], run_id: str) -> list[RunInfo]:
    """The runs inside a run, and those inside them; each after the one that it is in."""
    below: dict[str, list[RunInfo]] = {}
    for info in infos:
        if info.is_inside and info.parent is not None:
            below.setdefault(info.parent, []).append(info)
    found: list[RunInfo] = []
    ids = [run_id]
    for parent in ids:
        inner = sorted(below.pop(parent, ()), key=lambda info: info.created)
        ids += [info.run_id for info in inner]
        found += inner
    return found


def _check_replaceable(target: Path, store: RunStore) -> None:
    """Refuse the store that is exported from, which would be left with one run, and a file that is open."""
    if isinstance(store, SqliteRunStore) and target.exists() and target.samefile(store.path):
        raise RecordError(f"{target} is the store that the run is in. Choose another file.")
    if Path(f"{target}-wal").exists():  # its changes would be taken for those of the new file
        raise RecordError(f"{target} is open, or was when its process ended. Choose another file.")


@contextmanager
def reading_copy(path: Path, seal: Seal | None = None) -> Generator[SqliteRunStore]:
    """Open a copy of a file, to read it: opening a store changes its file and makes others beside it.

    `RecordError` when it is not a store, or cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="wink-reading-") as folder:
        copied = Path(folder) / path.name
        try:
            ensure_private(copied)
            uri = f"{path.resolve().as_uri()}?mode=ro"
            with closing(sqlite3.connect(uri, uri=True)) as source, closing(sqlite3.connect(copied)) as target:
                source.backup(target)
            store = SqliteRunStore(copied, seal=seal)
        except sqlite3.Error as error:
            raise RecordError(f"{path} cannot be read: {error}.") from error
        except RecordError as error:
            raise type(error)(str(error).replace(str(copied), str(path))) from None
        with store:
            yield store


def _copy(store: RunStore, info: RunInfo, copy: SqliteRunStore, masking: _Masking | None) -> None:
    steps = list(store.steps(info.run_id))
    last = steps[-1].seq if steps else 0
    files = list(store.files(info.run_id, until=last))
    if masking is None:
        blobs = _unmasked(store)
    else:
        steps, files, blobs = (
            [masking.step(step) for step in steps],
            [masking.file(file) for file in files],
            masking.blobs,
        )
        info = masking.info(info)
    new = NewRun(
        info.loop, info.session_id, info.request, info.request_digest, info.parent, info.forked_at, info.lineage,
        info.tags,
    )  # fmt: skip
    held = copy.take(info.run_id, new)
    for at in range(0, len(steps), _ROWS_AT_ONCE):
        some = steps[at : at + _ROWS_AT_ONCE]
        numbers = {step.seq for step in some}
        changed = [file for file in files if file.seq in numbers]
        held.append(NewRows(some, changed, blobs(some, changed)))
    if info.status != "running":
        held.append(NewRows(status=info.status))
    held.release()


def _finish(made: Path, infos: Iterable[RunInfo]) -> None:
    """Undo what the copying itself left: who had the runs, and when. And make one file of three."""
    with closing(sqlite3.connect(made)) as connection:
        for info in infos:
            values = (info.created, info.updated, info.run_id)
            statement = "UPDATE wink_runs SET owner = '', token = 1, created = ?, updated = ? WHERE run_id = ?"
            connection.execute(statement, values)
        connection.commit()
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("VACUUM")


def _place(made: Path, target: Path, *, overwrite: bool) -> None:
    made.chmod(0o600)
    if overwrite:
        made.replace(target)
        return
    try:
        target.hardlink_to(made)  # unlike a rename, refuses a file that came there meanwhile
    except FileExistsError:
        raise FileExistsError(f"There is a file {target} already; pass overwrite=True to replace it.") from None
    except OSError:  # a filesystem without hard links
        with target.open("xb"):
            pass
        made.replace(target)


@final
class _Masking:
    """Rows as they may leave: texts masked, and the names of blobs that hold other content then."""

    def __init__(self, store: RunStore, info: RunInfo, tools: Iterable[Tool[Any, Any]]) -> None:
        self._store = store
        tools = tuple(tools)
        self._secrets = SecretArguments(RecordedRun(store, info.run_id), tools)
        self._results: dict[str, Any] = {}
        for tool in tools:
            if isinstance(tool.result_type, type) and has_secrets(tool.result_type):
                self._results[tool.name] = tool.result_type
        self._made: dict[str, bytes] = {}
        self._names: dict[str, str] = {}
        self._found = 0
        self._large = self._masked_large = LargeItems()
        self._has_masked_state = False

    def blobs(self, steps: list[Step], files: list[FileStep]) -> Mapping[str, bytes]:
        """The content that masked rows refer to."""
        return {name: self._made.pop(name) for name in _blobs_of(steps, files) if name in self._made}

    def info(self, info: RunInfo) -> RunInfo:
        """The run itself, after its rows."""
        request = None if info.request is None else json.dumps(masked_data(json.loads(info.request)))
        digest = "" if request is None else digest_of(request.encode())
        digest = CONVERSATION + digest if info.is_conversation else digest
        found = max(self._found, int(info.tags.get(MASKED_TAG, "0")))
        return replace(info, request=request, request_digest=digest, tags={**info.tags, MASKED_TAG: str(found)})

    def file(self, file: FileStep) -> FileStep:
        """What a step did to a path."""
        return self._counted(file, replace(file, before=self._node(file.before), after=self._node(file.after)))

    def _node(self, node: str | None) -> str | None:
        if node is None or node.startswith("directory:"):
            return node
        kind, _, name = node.rpartition(":")
        return f"{kind}:{self._blob(name)}"

    def _blob(self, name: str) -> str:
        """The name of the masked content; what is not text is left as it is."""
        known = self._names.get(name)
        if known is None:
            content = self._store.blob(name)
            with suppress(UnicodeDecodeError):
                content = redact(content.decode()).encode()
            known = self._names[name] = digest_of(content)
            self._made[known] = content
        return known

    def step(self, step: Step) -> Step:
        """A step. Names of classes, ids and the shape of changes are what a reader needs, and stay."""
        body: dict[str, Any] = dict(self._secrets.masked(step))
        for name in ("text", "system", "full", "message", "schemas", "history"):
            if name in body:
                body[name] = self._text(body[name])
        if "calls" in body:
            body["calls"] = [[call_id, name, _arguments(kept)] for call_id, name, kept in body["calls"]]
        for name in ("native", "view"):
            if name in body:
                body[name] = masked_data(body[name])
        if "result" in body:
            body["result"] = self._result(step.tool or "", body["result"])
        if "state" in body:
            body["state"] = self._state(body["state"])
        if "resources" in body:
            body["resources"] = [[name, what, masked_data(data)] for name, what, data in body["resources"]]
        if "inside" in body:
            body["inside"] = [_item(item) for item in body["inside"]]
        event = body.get("event", {})
        if "error" in event:
            body["event"] = {**event, "error": masked_data(event["error"])}
        for kept in body.get("contents", ()):
            name = self._blob(kept["blob"])
            if name != kept["blob"]:  # a text with a credential in it
                body = json.loads(json.dumps(body).replace(kept["blob"], name))
        return self._counted(step, replace(step, body=body))

    def _state(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """The changes of the session: large items are masked as a whole, and then written as changes again."""
        whole, self._large = self._large.read(state)
        masked = _masked_state(whole)
        made, self._masked_large = self._masked_large.write(masked)
        self._has_masked_state |= masked != whole
        return made if self._has_masked_state else state

    def _counted(self, row: RowT, masked: RowT) -> RowT:
        self._found += masked != row
        return masked

    def _text(self, kept: Any) -> Any:
        if isinstance(kept, str):
            return redact(kept)
        return {"blob": self._blob(cast("dict[str, str]", kept)["blob"])} if isinstance(kept, dict) else kept

    def _result(self, tool: str, result: Mapping[str, Any]) -> dict[str, Any]:
        made = dict(result)
        if "message" in made:
            made["message"] = redact(made["message"])
        if "value" in made:
            secret = self._results.get(tool)
            made["value"] = _json_text(made["value"]) if secret is None else without_secrets(secret, made["value"])
        if "value_patches" in made:
            made["value_patches"] = json.dumps(_patches(json.loads(made["value_patches"])))
        return made


def _unmasked(store: RunStore) -> Blobs:
    """The content that rows refer to, as it is."""
    return lambda steps, files: {name: store.blob(name) for name in _blobs_of(steps, files)}


def _arguments(kept: Any) -> Any:
    return _json_text(kept) if isinstance(kept, str) else masked_data(kept)


def _json_text(text: str) -> str:
    """JSON text with its texts masked; what needs no mask stays as it was written, and so does what is not JSON."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return redact(text)
    masked = masked_data(data)
    return text if masked == data else json.dumps(masked, ensure_ascii=False)


def _masked_state(state: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = dict(state)
    if "slices" in made:
        made["slices"] = [[name, policy, _change(change)] for name, policy, change in made["slices"]]
    if "notes" in made:
        made["notes"] = [[_item(key), None if value is None else _item(value)] for key, value in made["notes"]]
    return made


def _change(change: Any) -> Any:
    if change is None:
        return None
    keep, replaced, added = change
    return [keep, {index: _item(item) for index, item in replaced.items()}, [_item(item) for item in added]]


def _item(item: list[Any]) -> list[Any]:
    """An item of a slice: `[data]`, or `[data, name of its class, patches]`, which are None for a JSON view."""
    data, *more = item
    if not more:
        return [masked_data(data)]
    name, patches = more
    return [masked_data(data), name, None if patches is None else _patches(patches)]


def _patches(patches: Iterable[Any]) -> list[Any]:
    return [[path, name, masked_data(data), _patches(inner)] for path, name, data, inner in patches]


def _blobs_of(steps: Iterable[Step], files: Iterable[FileStep]) -> set[str]:
    """The names of all content that these rows refer to."""
    nodes = [node for file in files for node in (file.before, file.after)]
    found = {node.rpartition(":")[2] for node in nodes if node is not None and not node.startswith("directory:")}
    for step in steps:
        for name in ("text", "system", "full", "schemas"):
            kept = step.body.get(name)
            if isinstance(kept, dict):
                found.add(cast("dict[str, str]", kept)["blob"])
        found.update(kept["blob"] for kept in step.body.get("contents", ()))
    return found


__all__ = ["MASKED_TAG", "export_run", "reading_copy", "runs_inside", "write_run"]
