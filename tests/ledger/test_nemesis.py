"""kill -9 and pauses at random points: at most one effect a key, and whatever is unknown is reported."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from .nemesis import Plan, Report

pytestmark = pytest.mark.slow  # processes that are killed

PROGRAM = Path(__file__).with_name("nemesis.py")


def torment(ledger: str, *, policy: str, kills: int, pauses: int = 0, fenced: bool = False) -> Report:
    seed = int(os.environ.get("WINK_TEST_SEED", random.randrange(1_000_000)))
    plan = Plan(ledger, policy, kills, pauses, seed, fenced)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(PROGRAM), json.dumps(asdict(plan))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"seed {seed}: {done.stderr[-4000:]}"
    report = Report(**json.loads(done.stdout))
    print(f"seed {seed}: {report}")
    assert report.kills >= kills, f"seed {seed}: {report}"
    assert report.pauses >= pauses
    assert report.keys > kills / 4, f"seed {seed}: {report}"
    return report


def at_most_once(report: Report) -> None:
    """What holds whatever happens."""
    assert report.repeated == []
    assert report.ran_twice == []
    assert report.succeeded_without_effect == []


def exactly_once(report: Report) -> None:
    """What holds when the outcome can be looked up."""
    at_most_once(report)
    assert report.without_effect == []
    assert report.unknown == 0
    assert report.effects == report.keys


@pytest.fixture(params=["sqlite", "postgres"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "ledger.db")
    return request.getfixturevalue("postgres")


def test_killed_workers_repeat_nothing(ledger: str) -> None:
    """Eight processes, killed at random: never two effects, and what is unknown is said."""
    at_most_once(torment(ledger, policy="unknown", kills=100))


def test_the_nemesis_finds_repeated_effects(tmp_path: Path) -> None:
    """Blind retries do repeat effects under the same torment: the proof can fail."""
    for _ in range(5):
        report = torment(str(tmp_path / "ledger.db"), policy="retry", kills=40)
        if report.repeated:
            return
        (tmp_path / "ledger.db").unlink()
    pytest.fail("200 kills repeated no effect: the torment hits nothing")


@pytest.mark.torture
class TestTorture:
    """At least 200 rounds each, on both stores."""

    def test_kills(self, ledger: str) -> None:
        """Nothing is repeated, nothing is taken as done that was not."""
        report = torment(ledger, policy="unknown", kills=400)
        at_most_once(report)
        assert report.unknown > 0

    def test_kills_with_reconcile(self, ledger: str) -> None:
        """Every key has exactly one effect."""
        exactly_once(torment(ledger, policy="reconcile", kills=250))

    def test_pauses(self, ledger: str) -> None:
        """Processes that sleep longer than their lease repeat nothing when they wake up."""
        at_most_once(torment(ledger, policy="unknown", kills=60, pauses=200))

    def test_pauses_with_reconcile_and_fencing(self, ledger: str) -> None:
        """Where the service outside compares tokens, zombies change nothing: exactly one effect."""
        exactly_once(torment(ledger, policy="reconcile", kills=60, pauses=200, fenced=True))
