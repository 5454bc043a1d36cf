"""The worker processes of the calculator: nothing is left of one, however it ends."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import needs

from weakincentives.contrib.asteval import AstevalBackend
from weakincentives.contrib.asteval import process as asteval_process
from weakincentives.contrib.asteval.backend import Bubblewrap
from weakincentives.contrib.code import EvalFiles, EvalLimits, EvalResult
from weakincentives.contrib.code.remote import Pipeline
from weakincentives.contrib.tools import AstevalSection

pytestmark = pytest.mark.slow  # an interpreter for each test

WAYS: list[Bubblewrap] = ["required", "never"]


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Bubblewrap:
    if request.param == "required":
        needs("bwrap", present=shutil.which("bwrap") is not None, install="apt-get install bubblewrap")
    return request.param


def evaluate(backend: AstevalBackend, code: str, limits: EvalLimits | None = None, **inputs: Any) -> EvalResult:
    return backend.evaluate(code, inputs, EvalFiles(), EvalLimits() if limits is None else limits)


def descendants(root: int | None = None) -> set[int]:
    """The processes below one, this one unless told; those that are over but not waited for included."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    found = {os.getpid() if root is None else root}
    while grown := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= grown
    return found - {os.getpid() if root is None else root}


def running(pids: set[int]) -> set[int]:
    """Those that are not over."""
    alive: set[int] = set()
    for pid in pids:
        with suppress(OSError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                alive.add(pid)
    return alive


def wait_until(condition: Callable[[], object], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.01)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_workers_end_with_their_owner(way: Bubblewrap) -> None:
    """No worker is started before it is needed, and none is left by `close` or by the end of the backend."""
    before = descendants()
    backend = AstevalBackend(bubblewrap=way)
    backend.close()
    assert descendants() == before
    assert evaluate(backend, "1 + 1").value == 2
    started = descendants() - before
    assert started
    backend.close()
    backend.close()
    wait_until(lambda: not running(started))
    assert evaluate(backend, "2 + 1").value == 3
    started = descendants() - before
    del backend
    gc.collect()
    wait_until(lambda: not running(started))
    assert descendants() <= before


def test_a_section_ends_its_workers() -> None:
    """`with` and the end of a section end the workers, as `close` does."""
    before = descendants()
    with AstevalSection() as section:
        assert evaluate(section.backend, "1").value == 1
        assert descendants() - before
    wait_until(lambda: descendants() <= before)


def test_nothing_leaks(way: Bubblewrap) -> None:
    """After 200 evaluations, some of which fail, crash or are killed, there are no more processes, threads or files."""
    others = descendants()
    backend = AstevalBackend(bubblewrap=way)
    evaluate(backend, "1")
    threads, files = threading.active_count(), descriptors()
    for n in range(200):
        if n % 40 == 0:
            assert "time limit" in str(evaluate(backend, "while True: pass", EvalLimits(seconds=0.05)).error)
        elif n % 40 == 20:
            for pid in descendants() - others:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            evaluate(backend, "n", n=n)  # it may have been given a worker that is just dying
            assert evaluate(backend, "n", n=n).value == n
        elif n % 3 == 0:
            assert evaluate(backend, "1 / 0").error is not None
        else:
            assert evaluate(backend, "n + 1", n=n).value == n + 1
    assert len(workers() - others) == 1
    assert threading.active_count() == threads
    assert descriptors() == files
    left = descendants() - others
    backend.close()
    wait_until(lambda: not running(left))
    assert descendants() <= others


def test_a_killed_worker_is_replaced(way: Bubblewrap) -> None:
    """When processes are killed from outside the call fails, and the next one works."""
    others = descendants()
    backend = AstevalBackend(bubblewrap=way)
    evaluate(backend, "1")
    with ThreadPoolExecutor(1) as threads:
        stuck = threads.submit(evaluate, backend, "while True: pass", EvalLimits(seconds=20))
        time.sleep(0.2)
        for pid in descendants() - others:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        assert stuck.result(60).error == "Stopped: the interpreter crashed"
    assert evaluate(backend, "2").value == 2
    backend.close()


def test_closing_cuts_off_what_runs(way: Bubblewrap) -> None:
    """An evaluation that runs when the backend is closed ends at once."""
    others = descendants()
    backend = AstevalBackend(bubblewrap=way)
    evaluate(backend, "1")
    with ThreadPoolExecutor(1) as threads:
        stuck = threads.submit(evaluate, backend, "while True: pass", EvalLimits(seconds=120))
        time.sleep(0.3)
        started = time.monotonic()
        backend.close()
        assert stuck.result(60).error == "Stopped: the interpreter crashed"
        assert time.monotonic() - started < 60
    wait_until(lambda: descendants() <= others)


def test_a_worker_that_hangs_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that does not end an evaluation is given up, with all its processes."""
    monkeypatch.setattr(asteval_process, "END_SECONDS", 0.2)
    others = descendants()
    backend = AstevalBackend(bubblewrap="never")
    evaluate(backend, "1")
    started = descendants() - others
    [worker] = workers() - others
    os.kill(worker, signal.SIGSTOP)
    try:
        result = evaluate(backend, "while True: pass", EvalLimits(seconds=0.1))
        assert result.error is not None
        assert "time limit exceeded" in result.error
        wait_until(lambda: not running(started))
    finally:
        with suppress(OSError):
            os.kill(worker, signal.SIGCONT)
    assert evaluate(backend, "2").value == 2
    backend.close()


def test_an_answer_counts_though_the_worker_is_slow_to_end_the_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the worker may take longer for that than it is given: it is replaced, and nothing is lost."""
    monkeypatch.setattr(asteval_process, "END_SECONDS", 0.2)
    others = descendants()
    backend = AstevalBackend(bubblewrap="never")
    evaluate(backend, "1")
    [worker] = workers() - others
    wait_until(lambda: len(descendants() - others) == 2)  # the process of the next evaluation waits already
    started = descendants() - others
    os.kill(worker, signal.SIGSTOP)
    try:
        assert evaluate(backend, "1 + 1", EvalLimits(seconds=60)).value == 2
        wait_until(lambda: not running(started))
    finally:
        with suppress(OSError):
            os.kill(worker, signal.SIGCONT)
    assert evaluate(backend, "2").value == 2
    backend.close()


def test_an_evaluation_that_ends_badly_tells_how_long_it_took() -> None:
    """As one that ends well."""
    backend = AstevalBackend(bubblewrap="never")
    assert evaluate(backend, "while True: pass", EvalLimits(seconds=0.2)).duration >= 0.2
    assert evaluate(backend, "1").duration > 0
    backend.close()


def test_threads_of_a_forked_process_share_one_pool() -> None:
    """The pool that was inherited is replaced once: each further one would have `max_workers` workers of its own."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(100):
            backend = AstevalBackend(bubblewrap="never")
            backend._pool.pid = -1  # as in a process that was just forked
            barrier = threading.Barrier(8)

            def current(barrier: threading.Barrier = barrier, backend: AstevalBackend = backend) -> object:
                barrier.wait(60)
                return backend._current()

            with ThreadPoolExecutor(8) as threads:
                assert len({asked.result(60) for asked in [threads.submit(current) for _ in range(8)]}) == 1
    finally:
        sys.setswitchinterval(interval)


def workers() -> set[int]:
    return {pid for pid in descendants() if parent_of(pid) == os.getpid()}


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def test_many_threads_at_once(way: Bubblewrap) -> None:
    """Evaluations of many threads do not see one another, and no more workers run than are allowed."""
    others = descendants()
    backend = AstevalBackend(bubblewrap=way, max_workers=2)

    def one(n: int) -> Any:
        return evaluate(backend, "x = n\nfor i in range(100): x += 1\nx", EvalLimits(seconds=20), n=n).value

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(one, range(40))) == [n + 100 for n in range(40)]
    assert len(workers() - others) <= 2
    backend.close()


def test_workers_outlive_the_thread_that_needed_them(way: Bubblewrap) -> None:
    """A worker that was started for a thread serves others when that thread is over."""
    backend = AstevalBackend(bubblewrap=way)
    thread = threading.Thread(target=lambda: evaluate(backend, "1"))
    thread.start()
    thread.join()
    before = workers()
    time.sleep(0.1)
    assert evaluate(backend, "2").value == 2
    assert workers() == before
    backend.close()


def test_an_interrupt_ends_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C during an evaluation propagates, and the evaluation's process does not go on."""
    others = descendants()
    backend = AstevalBackend()
    evaluate(backend, "1")
    before = descendants() - others

    def interrupted(*_: object) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Pipeline, "receive", interrupted)
        with pytest.raises(KeyboardInterrupt):
            evaluate(backend, "while True: pass", EvalLimits(seconds=30))
    wait_until(lambda: not running(before))
    assert evaluate(backend, "2").value == 2
    backend.close()


OWNER = """
import sys, time
from weakincentives.contrib.asteval import AstevalBackend
from weakincentives.contrib.code import EvalFiles, EvalLimits
backend = AstevalBackend(bubblewrap=sys.argv[1])
assert backend.evaluate("1 + 1", {}, EvalFiles(), EvalLimits()).value == 2
print("ready", flush=True)
backend.evaluate(sys.argv[2], {}, EvalFiles(), EvalLimits(seconds=100))
print("idle", flush=True)
time.sleep(100)
"""


@pytest.mark.parametrize("code", ["while True: pass", "1"])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_workers_die_with_their_owner(way: Bubblewrap, code: str, how: signal.Signals) -> None:
    """`kill -9` of the owner, idle or in the middle of an evaluation, leaves no process."""
    with subprocess.Popen([sys.executable, "-c", OWNER, way, code], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "ready\n"
        if code == "1":
            assert owner.stdout.readline() == "idle\n"
        time.sleep(0.2)
        started = descendants(owner.pid)
        assert len(started) >= 2
        owner.send_signal(how)
        owner.wait(20)
        wait_until(lambda: not running(started))


def test_a_normal_exit_leaves_nothing(way: Bubblewrap) -> None:
    """A program that ends without closing anything leaves no process and complains of nothing."""
    code = OWNER.partition("print(")[0] + "import os\nos.system(f'ps -o pid= --ppid {os.getpid()}')\n"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, way, ""], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == ""
    wait_until(lambda: not running({int(pid) for pid in done.stdout.split()}))


FORKING = """
import gc, os, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)
from weakincentives.contrib.asteval import AstevalBackend
from weakincentives.contrib.code import EvalFiles, EvalLimits
used, fresh = AstevalBackend(bubblewrap=sys.argv[1]), AstevalBackend(bubblewrap=sys.argv[1])
evaluate = lambda backend: backend.evaluate("1 + 1", {}, EvalFiles(), EvalLimits()).value
assert evaluate(used) == 2
child = os.fork()
if child == 0:
    print(evaluate(used), evaluate(fresh), flush=True)
    used.close()
    del used, fresh
    gc.collect()
    os._exit(0)
os.waitpid(child, 0)
print(evaluate(used), evaluate(fresh))
"""


def test_a_forked_process_has_workers_of_its_own(way: Bubblewrap) -> None:
    """After a fork both processes go on, and neither ends the workers of the other."""
    done = subprocess.run([sys.executable, "-c", FORKING, way], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["2", "2", "2", "2"]
    assert done.stderr == ""


def test_a_worker_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """When the worker fails to start the error has its last words."""
    broken = tmp_path / "worker"
    shutil.copytree(asteval_process.WORKER, broken)
    (broken / "main.py").write_text("raise ZeroDivisionError('broken on purpose')")
    monkeypatch.setattr(asteval_process, "WORKER", broken)
    with pytest.raises(RuntimeError, match="broken on purpose"):
        evaluate(AstevalBackend(bubblewrap="never"), "1")


def test_busy_workers_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """When all workers stay busy the call fails rather than waiting for ever."""
    from weakincentives.contrib.asteval import backend as asteval

    monkeypatch.setattr(asteval, "BUSY_SECONDS", 0.1)
    backend = AstevalBackend(max_workers=1)
    with ThreadPoolExecutor(1) as threads:
        stuck = threads.submit(evaluate, backend, "while True: pass", EvalLimits(seconds=2))
        time.sleep(0.5)
        assert evaluate(backend, "1").error == "All interpreters are busy; try again"
        stuck.result()
    backend.close()
