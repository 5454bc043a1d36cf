"""What `make bench` and CI say about figures, without measuring any."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks.__main__ import main, report
from benchmarks.bench_instructions import (
    KEPT,
    OTHER_BUILD,
    SAME_BUILD,
    Figures,
    Kept,
    allowed_growth,
    check,
    compare,
    read,
    this_build,
    write,
)
from benchmarks.harness import ELAPSED, SHORTEST_ELAPSED, Row, interleave, ratio

ROOT = Path(__file__).parents[2]
PLAIN = {"a plain call": 2.0, "a failed call": 3.0}


def counting(*answers: Figures) -> Callable[[], Figures]:
    """Counts that were made before; asking for one more than there are fails."""
    left = iter(answers)
    return lambda: next(left)


def checked(kept: Figures, *answers: Figures, build: dict[str, str] | None = None) -> tuple[int, str]:
    said: list[str] = []
    code = check(Kept(this_build() if build is None else build, kept), counting(*answers), said.append)
    return code, "\n".join(said)


def test_a_row_may_grow_by_three_per_cent_and_not_by_more() -> None:
    assert not compare(PLAIN, {"a plain call": 2.059, "a failed call": 3.0}, SAME_BUILD).grown
    assert set(compare(PLAIN, {"a plain call": 2.061, "a failed call": 3.0}, SAME_BUILD).grown) == {"a plain call"}


def test_a_row_that_grew_twice_fails_and_the_row_and_the_remedy_are_named() -> None:
    grown = {"a plain call": 2.2, "a failed call": 3.0}
    code, said = checked(PLAIN, grown, grown)
    assert code == 1
    assert "a plain call: 2.200 x the floor, kept is 2.000 x (+10.0%)" in said
    assert "python -m benchmarks.bench_instructions" in said
    assert "a failed call" not in said


def test_a_row_that_grew_once_and_not_again_does_not_fail() -> None:
    assert checked(PLAIN, {**PLAIN, "a plain call": 2.2}, PLAIN)[0] == 0


def test_two_rows_that_grow_in_turn_do_not_fail() -> None:
    first, second = {**PLAIN, "a plain call": 2.2}, {**PLAIN, "a failed call": 3.3}
    assert checked(PLAIN, first, second)[0] == 0


def test_figures_that_did_not_grow_are_counted_once() -> None:
    code, said = checked(PLAIN, PLAIN)
    assert code == 0
    assert "out of date" not in said


def test_a_row_that_shrank_much_is_out_of_date_and_no_failure() -> None:
    code, said = checked(PLAIN, {**PLAIN, "a failed call": 2.5})
    assert code == 0
    assert "The kept file is out of date. a failed call: 2.500 x the floor, kept is 3.000 x" in said


def test_a_row_that_one_side_lacks_is_reported() -> None:
    code, said = checked(PLAIN, {"a plain call": 2.0, "a new call": 9.0})
    assert code == 0
    assert "a new call: counted, but not in the kept file" in said
    assert "a failed call: in the kept file, but not counted" in said


def test_on_another_build_rows_that_grew_are_reported_and_do_not_fail() -> None:
    other = {**this_build(), "python": "CPython 3.99.0"}
    assert allowed_growth(Kept(other, {}), this_build()) == OTHER_BUILD
    code, said = checked(PLAIN, {**PLAIN, "a plain call": 4.0}, build=other)
    assert code == 0
    assert "Another build" in said
    assert "a plain call: 4.000 x the floor" in said


def test_what_is_written_is_read() -> None:
    kept = Kept({"python": "CPython 3.11.7"}, PLAIN)
    assert read(write(kept)) == kept


@pytest.mark.slow
def test_the_kept_file_has_a_figure_for_every_scenario_and_for_nothing_else() -> None:
    listed = subprocess.run(
        [sys.executable, "-m", "benchmarks.instructions", "names"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    assert listed[0] == "floor"
    assert sorted(listed[1:]) == sorted(read(KEPT.read_text()).rows)


def test_a_row_over_its_budget_is_named_and_the_exit_code_is_1() -> None:
    said: list[str] = []
    assert report([Row("fast", 1.0, 1.5), Row("slow", 2.0, 1.5)], said.append) == 1
    assert said[-1] == "Over its budget: slow: 2.00 x, allowed are 1.50 x"
    assert "1 of 2 within budget" in said
    assert report([Row("fast", 1.0, 1.5)], said.append) == 0


def test_columns_of_the_report_stand_below_each_other() -> None:
    said: list[str] = []
    report([Row("a", 1.0, 1.5), Row("b" * 78, 12_345.6, 1.5, "ms")], said.append)
    assert len({line.index("|", 60) for line in said[:4]}) == 1


def test_an_unknown_benchmark_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nonsense"]) == 2
    assert "no benchmark named nonsense" in capsys.readouterr().out


def test_a_ratio_is_of_cpu_time_unless_time_itself_is_asked_for() -> None:
    assert "CPU" in ratio("same", int, int, 1.0, rounds=1, batch_seconds=0.001).note
    assert "CPU" not in ratio("same", int, int, 1.0, rounds=1, clock=ELAPSED).note


def test_elapsed_time_is_never_measured_in_short_batches() -> None:
    began = ELAPSED()
    interleave(int, rounds=1, batch_seconds=0.001, clock=ELAPSED)
    assert ELAPSED() - began >= SHORTEST_ELAPSED / 2
