"""What every run store must do; a store's own tests are a subclass of three lines."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from ..errors import RecordError, RunBusyError
from ..runtime.record.protocol import RunStore
from ..runtime.record.rows import FileStep, FrameStep, NewRows, NewRun, RunStatus, Step, digest_of

_NEW = NewRun("Desk", "a session", '{"ticket": 1}', "digest", tags={"team": "support"})


def _raises(kind: type[BaseException], step: Any) -> BaseException:
    try:
        step()
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


class RunStoreContract(ABC):
    """Subclass it and say how a store is made; pytest collects its tests.

    `make_store` must give stores on the same database within one test, as other processes would open them.
    """

    @abstractmethod
    def make_store(self) -> RunStore:
        """A store on this test's database."""

    def test_a_run_begins_when_it_is_first_taken(self) -> None:
        """What is known of it is on record, and it belongs to the taker."""
        store = self.make_store()
        held = store.take("r", _NEW)
        assert held.is_new
        info = store.info("r")
        assert info is not None
        assert (info.loop, info.session_id, info.lineage) == ("Desk", "a session", "a session")
        assert (info.request, info.request_digest) == ('{"ticket": 1}', "digest")
        assert (info.status, info.alive, info.interrupted) == ("running", True, False)
        assert dict(info.tags) == {"team": "support"}
        held.release()
        store.close()

    def test_an_unknown_run_cannot_be_taken_without_a_beginning(self) -> None:
        """Nor be read."""
        store = self.make_store()
        _raises(RecordError, lambda: store.take("nothing"))
        assert store.info("nothing") is None
        assert list(store.steps("nothing")) == []
        store.close()

    def test_a_run_belongs_to_one_owner_at_a_time(self) -> None:
        """The error names the owner; once it was let go, another one may take it, and it is not new any more."""
        one, other = self.make_store(), self.make_store()
        held = one.take("r", _NEW)
        error = _raises(RunBusyError, lambda: other.take("r", _NEW))
        assert isinstance(error, RunBusyError)
        assert error.owner == held.info.owner
        assert error.owner in str(error)
        assert other.interrupted() == []
        held.release()
        held.release()
        assert [info.run_id for info in other.interrupted()] == ["r"]
        taken = other.take("r", _NEW)
        assert not taken.is_new
        assert taken.info.token > held.info.token
        taken.release()
        one.close()
        other.close()

    def test_of_many_that_begin_a_run_one_does(self) -> None:
        """The others are told that it is busy."""
        stores = [self.make_store() for _ in range(4)]

        def take(store: RunStore) -> bool:
            try:
                return store.take("r", _NEW).is_new
            except RunBusyError:
                return False

        with ThreadPoolExecutor(4) as pool:
            assert sum(pool.map(take, stores)) == 1
        for store in stores:
            store.close()

    def test_who_lost_a_run_adds_nothing(self) -> None:
        """The fence: rows under an old token are refused, as a whole."""
        store = self.make_store()
        first = store.take("r", _NEW)
        first.append(NewRows([Step(seq=1, kind="begin")]))
        first.release()
        second = store.take("r")
        blob = digest_of(b"lost")
        rows = NewRows([Step(seq=2, kind="turn")], [FileStep("a", 2, None, None)], {blob: b"lost"}, "done")
        _raises(RunBusyError, lambda: first.append(rows))
        assert [step.seq for step in store.steps("r")] == [1]
        assert store.files("r") == []
        _raises(RecordError, lambda: store.blob(blob))
        info = store.info("r")
        assert info is not None
        assert info.status == "running"
        second.append(NewRows([Step(seq=2, kind="turn")]))
        assert [step.seq for step in store.steps("r")] == [1, 2]
        second.release()
        store.close()

    def test_rows_come_back_as_they_were(self) -> None:
        """Every column, and any text in the body."""
        store, other = self.make_store(), self.make_store()
        step = Step(
            seq=1, kind="call", turn=3, parent_seq=None, call_id="c1", tool="book", outcome="succeeded", started=1.5,
            duration=0.25, input_tokens=7, output_tokens=9,
            body={"text": "\x00 \ud800 \u20ac 'quoted' :name {now}", "deep": [{"a": None}, 1.5, True]},
        )  # fmt: skip
        content = b"\x00\xff content"
        name = digest_of(content)
        held = store.take("r", _NEW)
        held.append(NewRows([step], [FileStep("dir/a b.txt", 1, None, f"file:644:{name}")], {name: content}))
        assert list(other.steps("r")) == [step]
        assert other.files("r") == [FileStep("dir/a b.txt", 1, None, f"file:644:{name}")]
        assert other.blob(name) == content
        held.release()
        store.close()
        other.close()

    def test_odd_characters_come_back_as_they_were(self) -> None:
        """Names of files need not be UTF-8, and a model may make up any id; each is found again by its name."""
        store, other = self.make_store(), self.make_store()
        odd = (
            "not utf-8 \udcff",
            "nul \x00",
            '/"quoted"',
            "/",
            "back\\slash \\ud800",
            "\ud800",
            "\U0001f600",
            " ",
        )
        for number, text in enumerate(odd):
            held = store.take(f"r{number}", NewRun(text, text, f'"{text}"', text, lineage=text, tags={text: text}))
            step = Step(
                seq=1, kind="call", call_id=text, tool=text, body={"state": {"slices": [[text, "state", None]]}}
            )
            content = text.encode("utf-8", "surrogatepass")
            node = f"file:644:{digest_of(content)}"
            files = [FileStep(text, 1, None, node), FileStep(f"other/{text}", 1, None, None)]
            frames = [FrameStep(text, 1, None), FrameStep("", 1, "")]
            held.append(NewRows([step], files, {digest_of(content): content}, frames=frames))
            held.release()
            assert list(other.steps(f"r{number}")) == [step]
            assert sorted(other.files(f"r{number}"), key=lambda file: file.path) == sorted(files, key=lambda f: f.path)
            assert other.files(f"r{number}", path=text) == files[:1]
            assert {file.path for file in other.files(f"r{number}", last=True)} == {text, f"other/{text}"}
            assert other.frames(f"r{number}", until=1) == [frames[1], frames[0]]
            assert other.files(other.fork(f"r{number}", at=1), path=text) == files[:1]
            info = other.info(f"r{number}")
            assert info is not None
            assert (info.loop, info.session_id, info.lineage) == (text, text, text)
            assert (info.request, info.request_digest, dict(info.tags)) == (f'"{text}"', text, {text: text})
        assert store.verify() == []
        store.close()
        other.close()

    def test_adding_rows_twice_is_the_same_as_once(self) -> None:
        """A commit whose answer was lost may be tried again."""
        store = self.make_store()
        held = store.take("r", _NEW)
        rows = NewRows(
            [Step(seq=1, kind="begin", body={"a": 1})], [FileStep("a", 1, None, None)], {digest_of(b""): b""}
        )
        held.append(rows)
        held.append(rows)
        assert len(list(store.steps("r"))) == 1
        assert len(store.files("r")) == 1
        held.release()
        store.close()

    def test_steps_can_be_selected(self) -> None:
        """By number and kind, also of long runs."""
        store = self.make_store()
        held = store.take("r", _NEW)
        steps = [Step(seq=n, kind="turn" if n % 2 else "call", body={"n": n}) for n in range(1, 2502)]
        held.append(NewRows(steps))
        assert [step.seq for step in store.steps("r")] == list(range(1, 2502))
        assert [step.seq for step in store.steps("r", after=10, until=13)] == [11, 12, 13]
        assert [step.seq for step in store.steps("r", until=6, kinds=("call",))] == [2, 4, 6]
        assert [step.seq for step in store.steps("r", seqs=[9, 7, 2501, 8, 9999])] == [7, 8, 9, 2501]
        assert [step.seq for step in store.steps("r", seqs=range(2, 2000), until=1500, kinds=("call",))] == [
            *range(2, 1501, 2)
        ]
        assert list(store.steps("r", seqs=[])) == []
        held.append(
            NewRows(files=[FileStep("a", 1, None, "x"), FileStep("b", 2, None, "y"), FileStep("a", 3, "x", None)])
        )
        assert [file.seq for file in store.files("r", path="a")] == [1, 3]
        assert [file.path for file in store.files("r", until=2)] == ["a", "b"]
        assert [(file.path, file.seq) for file in store.files("r", last=True)] == [("b", 2), ("a", 3)]
        assert [(file.path, file.seq) for file in store.files("r", until=2, last=True)] == [("a", 1), ("b", 2)]
        assert [file.seq for file in store.files("r", until=2, path="a", last=True)] == [1]
        held.release()
        store.close()

    def test_large_content_comes_back(self) -> None:
        """As any other, also after its run was forked and pruned."""
        store, other = self.make_store(), self.make_store()
        content = bytes(range(256)) * 20_000
        name = digest_of(content)
        held = store.take("r", _NEW)
        node = f"file:600:{name}"
        rows = NewRows([Step(seq=1, kind="end")], [FileStep("a", 1, None, node)], {name: content}, "done")
        held.append(rows)
        held.append(rows)
        held.release()
        assert other.blob(name) == content
        store.fork("r", at=1)
        store.prune(timedelta(0))
        assert other.blob(name) == content
        assert store.verify() == []
        store.prune(timedelta(0), interrupted=True)
        _raises(RecordError, lambda: other.blob(name))
        store.close()
        other.close()

    def test_frames_are_the_last_whole_slices_and_what_came_after(self) -> None:
        """Of each slice, up to a step; a fork has them too, and they keep their content when others are pruned."""
        store = self.make_store()
        held = store.take("r", _NEW)
        name = digest_of(b"[]")
        frames = [
            FrameStep("", 1, ""), FrameStep("a", 1, ""), FrameStep("a", 2, None), FrameStep("a", 3, name),
            FrameStep("a", 4, None), FrameStep("b", 4, None), FrameStep("", 4, ""), FrameStep("b", 5, None),
        ]  # fmt: skip
        steps = [Step(seq=n, kind="turn") for n in range(1, 6)]
        rows = NewRows(steps, blobs={name: b"[]"}, frames=frames)
        held.append(rows)
        held.append(rows)
        assert store.frames("r", until=5) == [FrameStep("", 4, ""), *frames[3:6]]
        assert store.frames("r", until=3) == frames[:2]
        assert store.frames("unknown", until=2) == []
        forked = store.fork("r", at=3)
        assert store.frames(forked, until=5) == frames[:2]
        held.append(NewRows(frames=[FrameStep("", 5, "")]))
        assert store.frames("r", until=5) == [FrameStep("", 5, ""), *frames[3:6], FrameStep("b", 5, None)]
        held.append(NewRows(status="done"))
        held.release()
        assert [info.run_id for info in store.prune(timedelta(0))] == ["r"]
        assert store.frames("r", until=5) == []
        assert store.blob(name) == b"[]"
        assert store.verify() == []
        store.prune(timedelta(0), interrupted=True)
        _raises(RecordError, lambda: store.blob(name))
        store.close()

    def test_a_run_that_is_over_can_be_taken_by_any_number(self) -> None:
        """To be served; it is neither running nor interrupted."""
        store = self.make_store()
        held = store.take("r", _NEW)
        held.append(NewRows([Step(seq=1, kind="end")], status="done"))
        held.release()
        readers = [store.take("r", _NEW), store.take("r")]
        assert [reader.info.status for reader in readers] == ["done", "done"]
        assert store.interrupted() == []
        assert [info.run_id for info in store.infos(status="done")] == ["r"]
        assert store.infos(status="failed") == []
        for reader in readers:
            reader.release()
        store.close()

    def test_runs_are_listed_with_the_last_one_first(self) -> None:
        """By when they were written to."""
        store = self.make_store()
        for name in ("a", "b", "c"):
            store.take(name, _NEW).release()
        held = store.take("a")
        held.append(NewRows([Step(seq=1, kind="begin")]))
        held.release()
        assert [info.run_id for info in store.infos()] == ["a", "c", "b"]
        assert [info.run_id for info in store.infos(limit=1)] == ["a"]
        assert [info.run_id for info in store.interrupted()] == ["a", "b", "c"]
        store.close()

    def test_a_failed_run_can_be_taken_up_again(self) -> None:
        """Only when that is asked for; one that is done cannot."""
        store = self.make_store()
        ends: tuple[RunStatus, ...] = ("failed", "done")
        for end in ends:
            held = store.take(end, _NEW)
            held.append(NewRows([Step(seq=1, kind="end")], status=end))
            held.release()
        for end, retry, status in (("failed", False, "failed"), ("failed", True, "running"), ("done", True, "done")):
            held = store.take(end, _NEW, retry=retry)
            assert held.info.status == status
            held.release()
        assert [info.run_id for info in store.interrupted()] == ["failed"]
        store.close()

    def test_a_fork_with_fresh_effects_has_a_session_of_its_own(self) -> None:
        """So that the ledger's effects of the other run's session are not its own."""
        store = self.make_store()
        held = store.take("r", _NEW)
        held.append(NewRows([Step(seq=1, kind="begin")]))
        held.release()
        sessions = [
            (info.session_id, info.lineage)
            for info in map(store.info, ("r", store.fork("r", at=1), store.fork("r", at=1, effects="fresh")))
            if info is not None
        ]
        assert sessions[0] == sessions[1] == ("a session", "a session")
        assert sessions[2][0] == sessions[2][1] != "a session"
        store.close()

    def test_a_fork_has_the_steps_so_far_and_a_life_of_its_own(self) -> None:
        """The other run stays as it is."""
        store = self.make_store()
        held = store.take("r", _NEW)
        content = digest_of(b"x")
        steps = [Step(seq=n, kind="turn") for n in range(1, 5)]
        held.append(NewRows(steps, [FileStep("a", 2, None, content), FileStep("a", 4, content, None)], {content: b"x"}))
        forked = store.fork("r", at=3)
        info = store.info(forked)
        assert info is not None
        assert (info.parent, info.forked_at, info.lineage, info.status) == ("r", 3, "a session", "running")
        assert [step.seq for step in store.steps(forked)] == [1, 2, 3]
        assert [file.seq for file in store.files(forked)] == [2]
        other = store.take(forked)
        other.append(NewRows([Step(seq=4, kind="end")], status="done"))
        assert [step.kind for step in store.steps("r")] == ["turn"] * 4
        _raises(RecordError, lambda: store.fork("r", at=99))
        _raises(RecordError, lambda: store.fork("r", at=1, new_id=forked))
        other.release()
        held.release()
        store.close()

    def test_a_fork_under_a_name_that_is_taken_changes_nothing(self) -> None:
        """Nor does it add the steps that the run of that name does not have."""
        store = self.make_store()
        content = digest_of(b"x")
        for run_id, count in (("long", 4), ("short", 2)):
            held = store.take(run_id, _NEW)
            steps = [Step(seq=n, kind="turn", body={"of": run_id}) for n in range(1, count + 1)]
            held.append(NewRows(steps, [FileStep("a", count, None, content)], {content: b"x"}))
            held.release()
        before = list(store.steps("short")), list(store.files("short"))
        _raises(RecordError, lambda: store.fork("long", at=4, new_id="short"))
        assert (list(store.steps("short")), list(store.files("short"))) == before
        store.take("empty", _NEW).release()  # by a process that ended before the first step
        _raises(RecordError, lambda: store.fork("long", at=4, new_id="empty"))
        assert not list(store.steps("empty"))
        _raises(RecordError, lambda: store.fork("long", at=4, new_id="long"))
        assert [step.seq for step in store.steps("long")] == [1, 2, 3, 4]
        store.close()

    def test_pruning_removes_what_ended_long_ago(self) -> None:
        """Not what is under way, interrupted or newer; content goes with the last run that refers to it."""
        store = self.make_store()
        names = {text: digest_of(text.encode()) for text in ("own", "shared", "in a body", "under way")}

        def begin(run_id: str, *texts: str, status: Any = None) -> Any:
            held = store.take(run_id, _NEW)
            files = [FileStep(text, 1, None, f"file:644:{names[text]}") for text in texts if text != "in a body"]
            body = {"deep": [{"text": {"blob": names["in a body"]}}]} if "in a body" in texts else {}
            blobs = {names[text]: text.encode() for text in texts}
            held.append(NewRows([Step(seq=1, kind="begin", body=body)], files, blobs, status))
            return held

        begin("ended", "own", "shared", "in a body", status="done").release()
        begin("failed", status="failed").release()
        begin("interrupted", "shared", "in a body").release()
        begin("waiting", status="paused").release()
        running = begin("running", "under way")
        assert store.prune(timedelta(hours=1)) == []
        found = store.prune(timedelta(0), dry_run=True)
        assert [info.run_id for info in found] == ["ended", "failed"]
        forked = store.fork("ended", at=1)
        removed = store.prune(timedelta(0))
        assert [info.run_id for info in removed] == ["ended", "failed"]
        assert store.info("ended") is None
        assert list(store.steps("ended")) == []
        assert store.files("ended") == []
        assert store.blob(names["own"]) == b"own"  # the fork has it
        assert store.prune(timedelta(0), interrupted=True)
        left = {info.run_id for info in store.infos()}
        assert left == {"waiting", "running"}, forked
        assert store.blob(names["under way"]) == b"under way"
        for text in ("own", "shared", "in a body"):
            _raises(RecordError, lambda text=text: store.blob(names[text]))
        running.append(NewRows([Step(seq=2, kind="end")], status="done"))
        running.release()
        assert begin("ended").is_new
        assert store.verify() == []
        store.close()

    def test_runs_can_begin_while_others_are_pruned(self) -> None:
        """Also when a run that ended is not let go yet: neither is taken for the other."""
        store, other = self.make_store(), self.make_store()
        held = store.take("ended", _NEW)
        held.append(NewRows([Step(seq=1, kind="end")], status="done"))
        for number in range(10):
            other.prune(timedelta(0))
            next_one = store.take(f"r{number}", _NEW)
            assert next_one.is_new
            next_one.append(NewRows([Step(seq=1, kind="end")], status="done"))
            held.release()
            held = next_one
        held.release()
        other.prune(timedelta(0))
        assert store.infos() == []
        store.close()
        other.close()

    def test_a_run_inside_a_call_of_another_belongs_to_that(self) -> None:
        """Going on with the other may need it, though it has ended; later it goes, even if it never did."""
        store = self.make_store()
        outer = store.take("r", _NEW)
        for name in ("ended", "broken off"):
            inner = store.take(name, _NEW._replace(parent="r"))
            inner.append(NewRows([Step(seq=1, kind="begin")], status="done" if name == "ended" else None))
            inner.release()
        info = store.info("ended")
        assert info is not None
        assert (info.parent, info.is_inside) == ("r", True)
        assert store.prune(timedelta(0)) == []
        outer.release()
        assert [info.run_id for info in store.interrupted()] == ["r"]
        assert store.prune(timedelta(0)) == []
        outer = store.take("r")
        outer.append(NewRows([Step(seq=1, kind="begin")], status="done"))
        outer.release()
        assert {info.run_id for info in store.prune(timedelta(0))} == {"r", "ended", "broken off"}
        store.close()

    def test_appends_during_pruning_keep_their_content(self) -> None:
        """Content that was there already, and that an append counts on, is not removed under it."""
        store, other = self.make_store(), self.make_store()
        name = digest_of(b"content")
        ended = threading.Event()

        def run(number: int) -> None:
            held = store.take(f"r{number}", _NEW)
            rows = [Step(seq=1, kind="begin"), Step(seq=2, kind="end")]
            held.append(NewRows(rows, [FileStep("a", 1, None, f"file:644:{name}")], {name: b"content"}, "done"))
            held.release()

        def prune() -> None:
            while not ended.is_set():
                other.prune(timedelta(0))

        with ThreadPoolExecutor(5) as pool:
            pruning = pool.submit(prune)
            try:
                list(pool.map(run, range(40)))
            finally:
                ended.set()
            pruning.result()
        assert store.verify() == []
        run(99)
        assert store.blob(name) == b"content"
        store.close()
        other.close()

    def test_forks_during_pruning_are_whole(self) -> None:
        """A run that is removed while it is forked has a fork with all its steps and content, or none."""
        store, other = self.make_store(), self.make_store()
        ended = threading.Event()

        def prune() -> None:
            while not ended.is_set():
                other.prune(timedelta(0))

        with ThreadPoolExecutor(1) as pool:
            pruning = pool.submit(prune)
            try:
                for number in range(20):
                    content = f"content {number}".encode()
                    name = digest_of(content)
                    held = store.take(f"r{number}", _NEW)
                    files = [FileStep("a", 1, None, f"file:644:{name}")]
                    held.append(NewRows([Step(seq=1, kind="end")], files, {name: content}, "done"))
                    held.release()
                    try:
                        forked = store.fork(f"r{number}", at=1)
                    except RecordError:
                        continue
                    assert [step.seq for step in store.steps(forked)] == [1]
                    assert [file.after for file in store.files(forked)] == [f"file:644:{name}"]
                    assert store.blob(name) == content
            finally:
                ended.set()
            pruning.result()
        assert store.verify() == []
        store.close()
        other.close()

    def test_verifying_compares_frames_with_what_changed(self) -> None:
        """A frame that is not what the changes add up to would give wrong state, and so would one that is missing."""

        def begin(run_id: str, frame: str, *, rows: Sequence[FrameStep] = (FrameStep("m:Item", 2, None),)) -> None:
            held = store.take(run_id, _NEW)
            changes: list[Any] = [[0, {}, [[1], [2]]], [2, {"0": [7]}, [[3]]], [2, {}, []]]
            steps = [
                Step(seq=seq, kind="turn", body={"state": {"slices": [["m:Item", "state", change]]}})
                for seq, change in enumerate(changes, 1)
            ]
            whole = f'["m:Item","state",[0,{{}},{frame}]]'.encode()
            name = digest_of(whole)
            ends = [FrameStep("m:Item", 1, ""), FrameStep("m:Item", 3, name), FrameStep("", 3, "")]
            held.append(NewRows(steps, blobs={name: whole}, frames=[*rows, *ends]))
            held.release()

        store = self.make_store()
        begin("right", "[[7],[2]]")
        assert store.verify() == []
        begin("wrong", "[[7],[3]]")
        assert [problem.split(":")[0] for problem in store.verify()] == ["Run 'wrong', step 3"]
        begin("missing", "[[7],[2]]", rows=())
        assert [problem.split(":")[0] for problem in store.verify()[1:]] == ["Run 'missing', step 2"]
        begin("not whole", "[[7],[2]]", rows=(FrameStep("m:Item", 2, ""),))
        assert [problem.split(":")[0] for problem in store.verify()[2:]] == ["Run 'not whole', step 2"]
        store.close()

    def test_verifying_finds_holes_and_missing_content(self) -> None:
        """Each problem is a sentence that says where; a sound store has none."""
        store = self.make_store()
        assert store.verify() == []
        name = digest_of(b"content")
        held = store.take("r", _NEW)
        node = f"file:644:{name}"
        held.append(NewRows([Step(seq=1, kind="begin")], [FileStep("a", 1, None, node)], {name: b"content"}))
        assert store.verify() == []
        held.append(NewRows([Step(seq=4, kind="turn")], [FileStep("b", 4, node, "no node")]))
        missing = digest_of(b"missing")
        held.append(NewRows([Step(seq=5, kind="turn", body={"text": {"blob": missing}})]))
        problems = store.verify()
        assert len(problems) == 3
        assert "step 2 to 3 is missing" in problems[0]
        assert "step 4, b" in problems[1]
        assert "step 5" in problems[2]
        assert missing in problems[2]
        held.release()
        store.close()

    def test_ids_are_plain_text(self) -> None:
        """An id that could not be listed or typed is refused."""
        store = self.make_store()
        for bad in ("", "a\nb", "x" * 201):
            _raises(ValueError, lambda bad=bad: store.take(bad, _NEW))
        store.take("ticket 4711/\u20ac", _NEW).release()
        store.close()

    def test_the_ledger_is_in_the_same_database(self) -> None:
        """One file or server holds runs and effects."""
        store, other = self.make_store(), self.make_store()
        ledger, same = store.ledger(), other.ledger()
        assert ledger.entries() == same.entries() == []
        ledger.close()
        same.close()
        store.close()
        other.close()


__all__ = ["RunStoreContract"]
