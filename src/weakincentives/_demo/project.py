"""The project to be repaired: a tea shop whose discounts are wrong, before and after."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

_CART = '''"""What a customer has to pay."""

from shop.discounts import discount
from shop.prices import PRICES


def total(items):
    """The sum of all items in cents, less the discount for their number."""
    cents = sum(PRICES[name] * count for name, count in items.items())
    percent = discount(sum(items.values()))
    return cents * (100 - percent) / 100
'''

_DISCOUNTS = '''"""Discounts by number: 10 percent from 5 pieces on, 20 percent from 10 on."""


def discount(count):
    """The percentage to take off."""
    if count > 5:
        return 10
    if count > 10:
        return 20
    return 0
'''

_TESTS = """import unittest

from shop.cart import total


class TotalTest(unittest.TestCase):
    def test_a_few_pieces_cost_what_they_cost(self):
        self.assertEqual(total({"mug": 1, "green tea": 2}), 2100)

    def test_five_pieces_are_cheaper(self):
        self.assertEqual(total({"green tea": 5}), 2025)

    def test_ten_pieces_are_cheaper_still(self):
        self.assertEqual(total({"green tea": 10}), 3600)

    def test_nobody_pays_half_a_cent(self):
        self.assertIsInstance(total({"sugar": 7}), int)
"""

BROKEN: dict[str, str] = {
    "README.md": "# Tea shop\n\nRun the tests: `python -m unittest discover tests`\n",
    "CHANGELOG.md": "# Changelog\n\n- Sugar is sold, too.\n",
    "shop/__init__.py": "",
    "shop/cart.py": _CART,
    "shop/discounts.py": _DISCOUNTS,
    "shop/prices.py": '"""Prices in cents."""\n\nPRICES = {"green tea": 450, "mug": 1200, "sugar": 99}\n',
    "tests/__init__.py": "",
    "tests/test_cart.py": _TESTS,
}
"""By path. Three of its four tests fail."""

TWO_EDITS = (
    ("shop/discounts.py", "count > 5", "count >= 5"),
    ("shop/discounts.py", "count > 10", "count >= 10"),
)
"""Not enough: ten pieces still get the smaller discount, since it is asked for first."""

IN_ORDER = (
    (
        "shop/discounts.py",
        "    if count > 5:\n        return 10\n    if count > 10:\n        return 20\n",
        "    if count >= 10:\n        return 20\n    if count >= 5:\n        return 10\n",
    ),
)
WHOLE_CENTS = (("shop/cart.py", "(100 - percent) / 100", "(100 - percent) // 100"),)
NOTED = """\
# Changelog

- Discounts begin at 5 and 10 pieces, as promised, and totals are whole cents.
- Sugar is sold, too.
"""


def repaired() -> dict[str, str]:
    """The project as the script leaves it."""
    files = {**BROKEN, "CHANGELOG.md": NOTED}
    for path, old, new in (*IN_ORDER, *WHOLE_CENTS):
        files[path] = files[path].replace(old, new)
    return files


def write_project(root: Path) -> None:
    """Put the broken project into a folder."""
    for path, text in BROKEN.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def files_in(root: Path) -> dict[str, str]:
    """Everything in the folder, by path; also what should not be there."""
    return {
        path.relative_to(root).as_posix(): path.read_text(errors="replace")
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


# The project's own tests, run as its developers run them.


_RAN = re.compile(r"^Ran (\d+) tests?", re.MULTILINE)
_BAD = re.compile(r"^(?:FAIL|ERROR): (\w+)", re.MULTILINE)
_WHY = re.compile(r"^(?:\w*Error|AssertionError): .*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class TestReport:
    """What a test run said."""

    ran: int
    failed: tuple[str, ...]
    reasons: tuple[str, ...] = ()

    @property
    def green(self) -> bool:
        """Whether there were tests and all of them passed."""
        return self.ran > 0 and not self.failed

    def render(self) -> str:
        """What the model reads."""
        if self.green:
            return f"{self.ran} tests passed."
        if not self.failed:
            return "No tests were found."
        lines = [f"{len(self.failed)} of {self.ran} tests fail:"]
        reasons = (*self.reasons, *[""] * len(self.failed))
        lines += [f"- {name}: {reason}".rstrip(": ") for name, reason in zip(self.failed, reasons, strict=False)]
        return "\n".join(lines)


def run_project_tests(root: Path) -> TestReport:
    """Run the tests in a process of their own, which leaves no compiled files behind."""
    done = subprocess.run(
        [sys.executable, "-B", "-E", "-S", "-m", "unittest", "discover", "-s", "tests", "-t", "."],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    ran = _RAN.search(done.stderr)
    failed = tuple(_BAD.findall(done.stderr))
    if done.returncode and not failed:
        failed = ("the test run itself",)
    return TestReport(int(ran[1]) if ran else 0, failed, tuple(_WHY.findall(done.stderr)))
