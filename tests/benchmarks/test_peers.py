"""The table and the plot of `make bench-peers`, without any of the frameworks."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from benchmarks.peers import work
from benchmarks.peers.__main__ import KEPT, MEASURES, PAGE, PLOT, main, versions
from benchmarks.peers.measure import measure
from benchmarks.peers.plot import draw
from benchmarks.peers.table import COLUMNS, Results, table

RESULTS: Results = {
    "WINK": {"turns-10": 20.0, "turns-100": 10.0, "turns-1000": 9.4, "memory": 1067.8, "import": 1.0},
    "slow==1.0": {"turns-10": 1000.0, "turns-100": 8000.0, "turns-1000": "> 60 s CPU", "async": "no async handlers"},
    "absent==1.0": dict.fromkeys(COLUMNS, "could not be installed"),
}


def test_every_framework_is_pinned_and_has_a_file_of_the_same_shape() -> None:
    assert len(versions()) == 7
    for name, requirement in {**versions(), "wink": "=="}.items():
        assert "==" in requirement
        tree = ast.parse((Path(work.__file__).with_name(f"{name}.py")).read_text())
        [function] = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "conversation"]
        assert [argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)] == [
            "turns",
            "asynchronous",
        ]


def test_the_table_says_why_a_figure_is_missing_and_what_cannot_be_compared() -> None:
    text = table(RESULTS)
    assert "| slow==1.0 |" in text
    for words in ("> 60 s CPU", "no async handlers", "could not be installed", "Not comparable", "9.4 x", "1,000 x"):
        assert words in text


def test_the_plot_is_well_formed_and_says_what_did_not_finish() -> None:
    text = draw(RESULTS)
    ET.fromstring(text)
    assert "did not finish in 60 s CPU" in text
    assert "slow 1.0" in text
    assert "absent" not in text


def test_the_plot_in_the_readme_and_the_table_are_made_from_the_kept_results() -> None:
    assert PLOT.read_text() == draw(json.loads(KEPT.read_text()))
    assert table(json.loads(KEPT.read_text())) in PAGE.read_text()


def test_the_kept_results_hold_a_figure_or_a_word_for_everything() -> None:
    kept: Results = json.loads(KEPT.read_text())
    assert list(kept)[1:] == list(versions().values())
    for cells in kept.values():
        assert set(cells) == {*MEASURES, "import"} == set(COLUMNS)


@pytest.mark.timing
@pytest.mark.parametrize("what", ["sync", "async", "turns-10", "memory", "together"])
def test_our_own_row_can_be_measured(what: str) -> None:
    assert measure("wink", what, 0.01) > 1


def test_an_unknown_framework_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nonsense"]) == 2
    assert "no framework named nonsense" in capsys.readouterr().out
