"""What the scripted model does: it makes the mistakes that models make, and gets over them."""

from __future__ import annotations

from ..testing import ScriptedAdapter, call, say
from .project import IN_ORDER, NOTED, TWO_EDITS, WHOLE_CENTS


def _edits(*edits: tuple[str, str, str]) -> list[dict[str, str]]:
    return [{"path": path, "old_text": old, "new_text": new} for path, old, new in edits]


def scripted_model() -> ScriptedAdapter:
    """Ten turns: a refusal, a change that is rolled back, and a project that is repaired."""
    return ScriptedAdapter(
        [
            say("First a plan."),
            call(
                "planning_setup_plan",
                objective="Make the tests of the tea shop pass",
                initial_steps=["See what fails", "Read the code", "Repair it", "Note it in the changelog"],
            ),
        ],
        [call("run_tests"), call("planning_update_step", step_id=1, status="done")],
        [
            say("I know this kind of code; I will just write it anew."),
            call("write_file", path="shop/discounts.py", content="def discount(count):\n    return 10\n"),
        ],
        [
            say("Fair enough. I read it first."),
            call("read_file", path="shop/discounts.py"),
            call("read_file", path="shop/cart.py"),
            call("planning_update_step", step_id=2, status="done"),
        ],
        [
            say("The comparisons are off by one, and the total is a float."),
            call("patch_and_test", edits=_edits(*TWO_EDITS, *WHOLE_CENTS)),
        ],
        [
            say("Both files are as they were. What did I miss?"),
            call("planning_update_step", step_id=3, note="The larger discount must be asked for first."),
        ],
        [call("patch_and_test", edits=_edits(*IN_ORDER, *WHOLE_CENTS))],
        [call("planning_update_step", step_id=3, status="done"), call("read_file", path="CHANGELOG.md")],
        [
            call("write_file", path="CHANGELOG.md", content=NOTED),
            call("planning_update_step", step_id=4, status="done"),
        ],
        say("All tests pass: discounts begin at 5 and 10 pieces, and totals are whole cents."),
    )


__all__ = ["scripted_model"]
