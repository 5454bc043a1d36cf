"""What every `Ledger` must do, as a test suite for pytest.

A three-line subclass tests an implementation:

    class TestMyLedger(LedgerContract):
        def make(self, clock: FakeClock) -> Ledger:
            return MyLedger(clock=clock)
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from threading import Barrier, Thread
from typing import Any, ClassVar

from ..errors import LeaseLostError, LedgerError
from ..results import ToolResult
from ..runtime.ledger import (
    Busy,
    Claim,
    Claimed,
    Conflict,
    EffectId,
    Ledger,
    LedgerEntry,
    Replay,
    StoredResult,
    ToolEffect,
    UnknownOutcome,
)
from ..runtime.ledger.effects import load_result, store_result
from .clock import FakeClock

LEASE = 0.25
DAY = timedelta(days=1)
KEY = EffectId("shop:refund:1")


@dataclass(frozen=True)
class Receipt:
    """A value to store."""

    number: int
    lines: tuple[str, ...] = ()


def done(message: str = "Done.", value: Any = None) -> StoredResult:
    """A result as ledgers take it."""
    return store_result(ToolResult(message, value), type(value))


class LedgerContract:
    """Subclass it, and pytest runs it. Every test gets an empty ledger of its own."""

    real_time: ClassVar[bool] = False
    """True for a ledger that asks a clock of its own: the suite then waits instead of moving the fake one."""

    durable: ClassVar[bool] = False
    """True when `make()`, called again in the same test, gives the same ledger as another process would see it."""

    clock: FakeClock
    _made: list[Ledger]

    def make(self, clock: FakeClock) -> Ledger:
        """A ledger that goes by this clock, empty when the test begins."""
        raise NotImplementedError("Return an empty ledger from make().")

    @property
    def ledger(self) -> Ledger:
        """The test's ledger; made on first use, when the subclass's fixtures have run."""
        return self._made[0] if self._made else self._another()

    def other(self) -> Ledger:
        """The same ledger as another process sees it; for one that lives in this process alone, itself."""
        return self._another() if self.durable and self.ledger else self.ledger

    def _another(self) -> Ledger:
        made = self.make(self.clock)
        self._made.append(made)
        return made

    def setup_method(self) -> None:
        """Called by pytest before each test."""
        self.clock = FakeClock()
        self._made = []

    def teardown_method(self) -> None:
        """Called by pytest after each test."""
        for made in self._made:
            made.close()

    def pass_time(self, seconds: float) -> None:
        """Let leases and entries run out."""
        if self.real_time:
            time.sleep(seconds)
        else:
            self.clock.advance(seconds)

    def claim(
        self,
        effect_id: EffectId = KEY,
        *,
        tool: str = "refund",
        params_hash: str = "h",
        strict: bool = False,
        lease: float = LEASE,
    ) -> Claim:
        """A claim with what most tests do not care about filled in."""
        return self.ledger.claim(effect_id, tool_name=tool, params_hash=params_hash, lease=lease, strict_params=strict)

    def claimed(self, effect_id: EffectId = KEY, *, lease: float = 60.0) -> int:
        """The token of a claim that must go through."""
        found = self.claim(effect_id, lease=lease)
        assert isinstance(found, Claimed), found
        return found.token

    def entry(self) -> LedgerEntry:
        """The only row."""
        (entry,) = self.ledger.entries()
        return entry

    # The life of a call.

    def test_it_is_a_ledger(self) -> None:
        """It has every method of the protocol."""
        assert isinstance(self.ledger, Ledger)

    def test_the_first_claim_goes_through(self) -> None:
        """And leaves a started row that others can see."""
        token = self.claimed()
        (entry,) = self.other().entries()
        assert (entry.id, entry.tool_name, entry.state, entry.token) == (KEY, "refund", "started", token)
        assert 0 < entry.lease_left <= 60

    def test_a_second_claim_is_told_to_wait(self) -> None:
        """At most until the lease runs out."""
        self.claimed(lease=60.0)
        found = self.other().claim(KEY, tool_name="refund", params_hash="h", lease=60.0, strict_params=False)
        assert isinstance(found, Busy)
        assert 0 < found.lease_left <= 60

    def test_what_was_finished_is_replayed(self) -> None:
        """To everybody, with message, value and times."""
        effect = self.ledger.finish(KEY, self.claimed(), done("Refunded.", Receipt(7, ("a",))), DAY)
        found = self.other().claim(KEY, tool_name="refund", params_hash="other", lease=60.0, strict_params=False)
        assert found == Replay(effect)
        assert (effect.result_message, effect.result_value) == ("Refunded.", {"number": 7, "lines": ["a"]})
        assert (effect.result_success, effect.tool_name, effect.params_hash) == (True, "refund", "h")
        assert effect.expires_at is not None
        assert effect.expires_at - effect.created_at == DAY

    def test_a_replayed_value_has_its_type(self) -> None:
        """JSON in between, the same value on both ends."""
        self.ledger.finish(KEY, self.claimed(), done("OK", Receipt(7, ("a", "b"))), None)
        found = self.claim()
        assert isinstance(found, Replay)
        assert load_result(found.effect.stored, Receipt) == ToolResult("OK", Receipt(7, ("a", "b")))

    def test_any_text_comes_back(self) -> None:
        """Also what is not ASCII; NUL, which databases refuse, only as a sign for it."""
        text = "\u00e9\u4e2d\U0001f600 \"quoted\" 'single' %s :name {brace} \\ \n"
        self.ledger.finish(EffectId(f"shop:{text[:-1]}"), self.claimed(EffectId(f"shop:{text[:-1]}")), done(text), None)
        effect = self.ledger.lookup(f"shop:{text[:-1]}")
        assert effect is not None
        assert effect.result_message == text
        self.ledger.finish(KEY, self.claimed(), done("a\x00b\ud800", "c\x00d"), None)
        found = self.ledger.lookup(KEY.key)
        assert found is not None
        assert (found.result_message, found.result_value) == ("a\ufffdb\\ud800", "c\x00d")

    def test_what_was_forgotten_may_be_tried_again(self) -> None:
        """With a new token, higher than the old one."""
        first = self.claimed()
        assert self.ledger.forget(KEY, first)
        assert self.ledger.entries() == []
        assert self.claimed() > first

    def test_what_is_in_doubt_is_not_run_again(self) -> None:
        """Every claim is told why, for ever."""
        token = self.claimed()
        assert self.ledger.doubt(KEY, token, "it raised")
        for _ in range(2):
            found = self.claim()
            assert isinstance(found, UnknownOutcome)
            assert (found.entry.state, found.entry.why, found.entry.token) == ("unknown", "it raised", token)
            self.pass_time(LEASE * 2)

    def test_a_lease_that_ran_out_leaves_doubt(self) -> None:
        """How far the call came is unknown, so it is not repeated."""
        self.claimed(lease=LEASE)
        self.pass_time(LEASE * 1.5)
        found = self.claim()
        assert isinstance(found, UnknownOutcome)
        assert "ended or was paused" in found.entry.why
        assert self.entry().state == "unknown"

    def test_other_params_under_one_key_conflict_when_that_matters(self) -> None:
        """In every state of the row; and not at all when it does not matter."""
        token = self.claimed()
        for step in (lambda: True, lambda: self.ledger.doubt(KEY, token, "?"), self._finisher(token)):
            assert step()
            assert isinstance(self.claim(params_hash="other", strict=True), Conflict)
            assert not isinstance(self.claim(params_hash="other"), Conflict)
            assert not isinstance(self.claim(params_hash="h", strict=True), Conflict)

    def test_another_tool_under_one_key_conflicts(self) -> None:
        """In every state of the row, whatever its params; nothing of it changes."""
        token = self.claimed()
        for step in (lambda: True, lambda: self.ledger.doubt(KEY, token, "?"), self._finisher(token)):
            assert step()
            before = (self.entry().state, self.entry().token)
            for strict in (False, True):
                found = self.claim(tool="charge", strict=strict)
                assert isinstance(found, Conflict)
                assert found.entry.tool_name == "refund"
            assert (self.entry().state, self.entry().token, self.entry().tool_name) == (*before, "refund")

    def test_an_expired_row_of_another_tool_is_nobodys(self) -> None:
        """Then the key is free."""
        self.ledger.finish(KEY, self.claimed(), done(), timedelta(seconds=LEASE))
        self.pass_time(LEASE * 1.5)
        assert isinstance(self.claim(tool="charge", lease=60.0), Claimed)
        assert self.entry().tool_name == "charge"

    def test_a_row_without_a_tools_name_is_any_tools(self) -> None:
        """It was recorded by hand; it is replayed, so that nothing runs twice."""
        self.ledger.record(idempotency_key=KEY.key, tool_name="", params=None, result=ToolResult.ok("by hand"))
        for tool in ("refund", "charge"):
            assert isinstance(self.claim(tool=tool), Replay)

    def _finisher(self, token: int) -> Callable[[], ToolEffect]:
        return lambda: self.ledger.finish(KEY, token, done(), None)

    # Leases and tokens.

    def test_a_beat_extends_the_lease(self) -> None:
        """For as long as there are beats."""
        token = self.claimed(lease=LEASE * 2)
        for _ in range(3):
            self.pass_time(LEASE)
            self.ledger.extend(KEY, token, LEASE * 2)
        self.pass_time(LEASE)
        assert isinstance(self.claim(), Busy)

    def test_a_beat_with_an_old_token_is_refused(self) -> None:
        """Whether the row is gone, in doubt, taken over or done."""
        token = self.claimed()
        self._refused(lambda: self.ledger.extend(KEY, token + 1, 1.0))
        self.ledger.doubt(KEY, token, "?")
        self._refused(lambda: self.ledger.extend(KEY, token, 1.0))
        self.ledger.forget(KEY, token)
        self._refused(lambda: self.ledger.extend(KEY, token, 1.0))

    def test_taking_over_revokes_the_old_token(self) -> None:
        """A zombie that wakes up records nothing, forgets nothing and casts no doubt."""
        old = self.claimed()
        self.ledger.doubt(KEY, old, "?")
        new = self.ledger.take_over(KEY, old, 60.0)
        assert new is not None
        assert new > old
        self._refused(lambda: self.ledger.finish(KEY, old, done("zombie"), None))
        self._refused(lambda: self.ledger.extend(KEY, old, 60.0))
        assert not self.ledger.forget(KEY, old)
        assert not self.ledger.doubt(KEY, old, "zombie")
        assert (self.entry().state, self.entry().token) == ("started", new)
        self.ledger.finish(KEY, new, done("mine"), None)
        assert self._message() == "mine"
        self._refused(lambda: self.ledger.finish(KEY, old, done("zombie"), None))
        assert not self.ledger.forget(KEY, old)
        assert self._message() == "mine"

    def test_a_taken_over_call_has_a_lease_again(self) -> None:
        """Others wait for it, and doubt it when that runs out as well."""
        token = self.claimed()
        self.ledger.doubt(KEY, token, "?")
        self.ledger.take_over(KEY, token, LEASE)
        assert isinstance(self.claim(), Busy)
        self.pass_time(LEASE * 1.5)
        assert isinstance(self.claim(), UnknownOutcome)

    def test_only_doubt_can_be_taken_over_and_only_once(self) -> None:
        """Not a running call, not a finished one, not one that was taken over."""
        token = self.claimed()
        assert self.ledger.take_over(KEY, token, 1.0) is None
        self.ledger.doubt(KEY, token, "?")
        assert self.ledger.take_over(KEY, token + 1, 1.0) is None
        new = self.ledger.take_over(KEY, token, 60.0)
        assert new is not None
        assert self.ledger.take_over(KEY, token, 1.0) is None
        self.ledger.finish(KEY, new, done(), None)
        assert self.ledger.take_over(KEY, new, 1.0) is None
        assert self.ledger.take_over(EffectId("nothing"), 1, 1.0) is None

    def test_the_holder_of_the_token_may_end_a_doubt(self) -> None:
        """It was slow, not dead: as long as it was not taken over, it knows what happened."""
        token = self.claimed(lease=LEASE)
        self.pass_time(LEASE * 1.5)
        assert isinstance(self.claim(), UnknownOutcome)
        self.ledger.finish(KEY, token, done("late"), None)
        assert self._message() == "late"

    def test_finishing_twice_is_finishing_once(self) -> None:
        """An answer that was lost may be asked for again; the first record stays."""
        token = self.claimed()
        first = self.ledger.finish(KEY, token, done("first"), DAY)
        assert self.ledger.finish(KEY, token, done("second"), None) == first

    def test_a_finished_call_cannot_be_forgotten_or_doubted(self) -> None:
        """What happened, happened."""
        token = self.claimed()
        self.ledger.finish(KEY, token, done(), None)
        assert not self.ledger.forget(KEY, token)
        assert not self.ledger.doubt(KEY, token, "?")
        assert isinstance(self.claim(), Replay)

    def test_a_row_that_is_gone_cannot_be_ended(self) -> None:
        """Nothing is written for a token that was never given."""
        self._refused(lambda: self.ledger.finish(KEY, 1, done(), None))
        assert not self.ledger.forget(KEY, 1)
        assert not self.ledger.doubt(KEY, 1, "?")
        assert self.ledger.entries() == []

    # Sessions and expiry.

    def test_sessions_have_rows_of_their_own(self) -> None:
        """The same key in two sessions is two calls."""
        first, second = EffectId("session:refund:1", "a"), EffectId("session:refund:1", "b")
        self.ledger.finish(first, self.claimed(first), done("in a"), None)
        self.ledger.finish(second, self.claimed(second), done("in b"), None)
        assert self._message("session:refund:1", "a") == "in a"
        assert self._message("session:refund:1", "b") == "in b"
        assert self.ledger.lookup("session:refund:1", "c") is None
        assert self.ledger.lookup("session:refund:1", "") is None
        assert self._message("session:refund:1") in {"in a", "in b"}
        assert self.ledger.invalidate("session:refund:1", "a")
        assert self._message("session:refund:1") == "in b"

    def test_a_success_expires(self) -> None:
        """Then it is neither found nor replayed, and the call runs again."""
        token = self.claimed()
        self.ledger.finish(KEY, token, done(), timedelta(seconds=LEASE))
        assert self.ledger.lookup(KEY.key) is not None
        self.pass_time(LEASE * 1.5)
        assert self.ledger.lookup(KEY.key) is None
        assert self.claimed() > token

    def test_an_expired_success_is_claimed_without_being_looked_up(self) -> None:
        """With other params as well: nothing is left to conflict with."""
        self.ledger.finish(KEY, self.claimed(), done(), timedelta(seconds=LEASE))
        self.pass_time(LEASE * 1.5)
        assert isinstance(self.claim(params_hash="other", strict=True, lease=60.0), Claimed)
        assert (self.entry().state, self.entry().params_hash) == ("started", "other")
        assert self.ledger.lookup(KEY.key) is None

    def test_a_ttl_beyond_the_calendar_is_for_ever(self) -> None:
        """Whatever records it: the engine, an operator, a program."""
        effect = self.ledger.finish(KEY, self.claimed(), done(), timedelta.max)
        assert effect.expires_at is None
        assert isinstance(self.claim(), Replay)
        other = EffectId("shop:refund:2")
        self.ledger.doubt(other, self.claimed(other), "?")
        assert self.ledger.resolve(other, ToolResult.ok(1), ttl=timedelta.max)
        recorded = self.ledger.record(
            idempotency_key="k", tool_name="t", params=None, result=ToolResult.ok(1), ttl=timedelta.max
        )
        assert recorded is not None
        assert recorded.expires_at is None
        assert self.ledger.prune_expired() == 0

    def test_without_a_ttl_nothing_expires(self) -> None:
        """None means for ever."""
        self.ledger.finish(KEY, self.claimed(), done(), None)
        self.pass_time(LEASE)
        assert self.ledger.prune_expired() == 0
        assert isinstance(self.claim(), Replay)

    def test_expiry_never_drops_what_is_started_or_unknown(self) -> None:
        """Nor does anything else that forgets successes."""
        started, unknown = EffectId("shop:refund:started"), EffectId("shop:refund:unknown")
        self.claimed(started)
        self.ledger.doubt(unknown, self.claimed(unknown), "?")
        self.ledger.finish(KEY, self.claimed(), done(), timedelta(seconds=LEASE))
        self.pass_time(LEASE * 1.5)
        assert self.ledger.prune_expired() == 1
        assert not self.ledger.invalidate(started.key)
        assert not self.ledger.invalidate(unknown.key)
        assert self.ledger.invalidate_by_tool("refund") == 0
        assert self.ledger.clear() == 0
        assert {entry.id for entry in self.ledger.entries()} == {started, unknown}
        assert [entry.id for entry in self.ledger.entries("unknown")] == [unknown]

    # Reading.

    def test_what_is_known_of_a_call_is_found_without_a_claim(self) -> None:
        """In every state, as operators see it, from elsewhere too; nothing changes by it."""
        assert self.ledger.find(KEY) is None
        token = self.claimed()
        for step in (lambda: True, lambda: self.ledger.doubt(KEY, token, "?"), self._finisher(token)):
            assert step()
            found = self.other().find(KEY)
            assert found is not None
            assert (found.id, found.state, found.token) == (KEY, self.entry().state, token)
        assert found.effect == self.ledger.lookup(KEY.key)
        assert self.ledger.find(EffectId(KEY.key, "another session")) is None

    def test_finding_an_abandoned_call_leaves_it_as_it_is(self) -> None:
        """Its lease has run out; that it is in doubt is written by the next claim only."""
        self.claimed(lease=LEASE)
        self.pass_time(LEASE * 1.5)
        found = self.ledger.find(KEY)
        assert found is not None
        assert found.state == "started"
        assert found.lease_left <= 0
        assert self.entry().state == "started"

    def test_an_expired_success_is_not_found(self) -> None:
        """It counts as never having happened."""
        self.ledger.finish(KEY, self.claimed(), done(), timedelta(seconds=LEASE))
        self.pass_time(LEASE * 1.5)
        assert self.ledger.find(KEY) is None

    def test_a_new_ledger_holds_no_former_keys(self) -> None:
        """Only one that has outlived a release does."""
        self.claimed()
        assert not self.ledger.former_keys
        assert not self.other().former_keys

    # Remembered successes.

    def test_a_success_can_be_recorded_and_looked_up(self) -> None:
        """The five arguments that users know."""
        recorded = self.ledger.record(
            idempotency_key="session:create_order:abc123",
            tool_name="create_order",
            params=Receipt(1),
            result=ToolResult.ok(Receipt(2), message="Made."),
            ttl=timedelta(hours=1),
        )
        found = self.other().lookup("session:create_order:abc123")
        assert found == recorded
        assert found is not None
        assert (found.result_message, found.result_value, found.tool_name) == (
            "Made.", {"number": 2, "lines": []}, "create_order",
        )  # fmt: skip
        assert found.result_success

    def test_a_failure_is_not_recorded(self) -> None:
        """Failed calls may be tried again."""
        failed = ToolResult[None].error("No.")
        assert self.ledger.record(idempotency_key="k", tool_name="t", params=None, result=failed) is None
        assert self.ledger.lookup("k") is None

    def test_recording_again_replaces(self) -> None:
        """But never what is started or in doubt."""
        for text in ("one", "two"):
            self.ledger.record(idempotency_key="k", tool_name="t", params=None, result=ToolResult.ok(text))
        effect = self.ledger.lookup("k")
        assert effect is not None
        assert effect.result_value == "two"
        self.claimed()
        error = _raised(
            LedgerError,
            lambda: self.ledger.record(idempotency_key=KEY.key, tool_name="t", params=None, result=ToolResult.ok(1)),
        )
        assert "resolve()" in str(error)

    def test_the_effect_of_another_tool_is_not_recorded_over(self) -> None:
        """Two tools never share a row; the first one's stays."""
        self.ledger.record(idempotency_key="k", tool_name="t", params=None, result=ToolResult.ok("one"))
        error = _raised(
            LedgerError,
            lambda: self.ledger.record(idempotency_key="k", tool_name="u", params=None, result=ToolResult.ok("two")),
        )
        assert "recorded for the tool t" in str(error)
        effect = self.ledger.lookup("k")
        assert effect is not None
        assert (effect.tool_name, effect.result_value) == ("t", "one")

    def test_successes_can_be_forgotten_one_by_one_by_tool_and_all(self) -> None:
        """And only those that are meant."""
        for key, tool in (("a", "x"), ("b", "x"), ("c", "y"), ("d", "z")):
            self.ledger.record(idempotency_key=key, tool_name=tool, params=None, result=ToolResult.ok(1))
        assert self.ledger.invalidate("d")
        assert not self.ledger.invalidate("d")
        assert self.ledger.invalidate_by_tool("x") == 2
        assert [entry.id.key for entry in self.ledger.entries()] == ["c"]
        assert self.ledger.clear() == 1
        assert self.ledger.entries() == []

    def test_long_and_odd_keys_work(self) -> None:
        """Whatever a key function makes of the model's text."""
        for key in ("shop:" + "x" * 5000, "shop:nul\x00", "shop:\ud800", "shop:line\nbreak"):
            self.ledger.record(idempotency_key=key, tool_name="t", params=None, result=ToolResult.ok(key[:9]))
        assert len(self.ledger.entries()) == 4
        assert self.ledger.lookup("shop:" + "x" * 4999) is None
        assert self.ledger.lookup("shop:nul\x00") is not None
        assert self.ledger.invalidate("shop:" + "x" * 5000)

    # Operators.

    def test_a_doubt_can_be_settled_as_done(self) -> None:
        """The next call is answered with what the operator says, and the old token is revoked."""
        token = self.claimed()
        self.ledger.doubt(KEY, token, "?")
        assert self.other().resolve(KEY, ToolResult.ok({"id": 7}, message="It did happen."))
        found = self.claim()
        assert isinstance(found, Replay)
        assert (found.effect.result_message, found.effect.result_value) == ("It did happen.", {"id": 7})
        self._refused(lambda: self.ledger.finish(KEY, token, done("zombie"), None))

    def test_a_doubt_can_be_settled_as_absent(self) -> None:
        """Then the call may run, and the old token is revoked."""
        token = self.claimed()
        self.ledger.doubt(KEY, token, "?")
        assert self.ledger.resolve(KEY, None)
        self._refused(lambda: self.ledger.finish(KEY, token, done("zombie"), None))
        assert self.claimed() > token

    def test_a_running_call_is_settled_by_force_only(self) -> None:
        """It may yet end by itself."""
        self.claimed()
        assert "may still be running" in str(_raised(LedgerError, lambda: self.ledger.resolve(KEY, None)))
        assert self.entry().state == "started"
        assert self.ledger.resolve(KEY, None, force=True)
        assert self.ledger.entries() == []

    def test_an_abandoned_call_needs_no_force(self) -> None:
        """Its lease has run out."""
        self.claimed(lease=LEASE)
        self.pass_time(LEASE * 1.5)
        assert self.ledger.resolve(KEY, ToolResult("Done by hand."))
        assert self._message() == "Done by hand."

    def test_there_is_nothing_to_settle_about_a_success(self) -> None:
        """Nor about a call that never was."""
        assert not self.ledger.resolve(KEY, None)
        self.ledger.finish(KEY, self.claimed(), done(), None)
        assert not self.ledger.resolve(KEY, None)
        assert isinstance(self.claim(), Replay)

    # Threads.

    def test_of_many_claims_at_once_one_goes_through(self) -> None:
        """The others wait; then they get its result."""
        ledgers = [self.ledger, self.other()]
        for round_number in range(5):
            effect_id = EffectId(f"shop:race:{round_number}")
            claims = self._at_once(
                lambda index, effect_id=effect_id: ledgers[index % 2].claim(
                    effect_id, tool_name="refund", params_hash="h", lease=60.0, strict_params=False
                )
            )
            won = [found for found in claims if isinstance(found, Claimed)]
            assert len(won) == 1, claims
            assert all(isinstance(found, Busy) for found in claims if found not in won)
            self.ledger.finish(effect_id, won[0].token, done(), None)
            replays = self._at_once(lambda _, effect_id=effect_id: self.claim(effect_id))
            assert all(isinstance(found, Replay) for found in replays)

    def test_of_many_who_take_over_one_does(self) -> None:
        """So that a doubt is looked into once."""
        token = self.claimed()
        self.ledger.doubt(KEY, token, "?")
        taken = self._at_once(lambda _: self.ledger.take_over(KEY, token, 60.0))
        assert len([new for new in taken if new is not None]) == 1

    def _at_once(self, step: Callable[[int], Any], threads: int = 8) -> list[Any]:
        barrier, results = Barrier(threads), list[Any]()

        def run(index: int) -> None:
            barrier.wait()
            try:
                results.append(step(index))
            except Exception as error:  # noqa: BLE001 - shown by the assertion that misses a result
                results.append(error)

        running = [Thread(target=run, args=(index,)) for index in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        return results

    def _message(self, key: str = KEY.key, session_id: str | None = None) -> str | None:
        effect = self.ledger.lookup(key, session_id)
        return None if effect is None else effect.result_message

    def _refused(self, step: Callable[[], object]) -> None:
        _raised(LeaseLostError, step)


def _raised(expected: type[BaseException], step: Callable[[], object]) -> BaseException:
    try:
        step()
    except expected as error:
        return error
    raise AssertionError(f"{expected.__name__} was not raised")
