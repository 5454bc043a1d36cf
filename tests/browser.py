"""A real browser for tests of pages: Debian's Chromium, driven by playwright, which downloads nothing.

`browser` is a fixture: import it, and `page` if a test needs a page of its own. A test skips where there is no browser
or no playwright; `WINK_TEST_REQUIRE=chromium` turns that into a failure.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest
from tests.conftest import needs

SECONDS = 60
"""How long a page has for anything it must do; a busy machine needs them."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One browser for the tests of a module."""
    path = shutil.which("chromium")
    install = "apt-get install chromium; pip install playwright (`playwright install` is not needed)"
    is_there = path is not None and find_spec("playwright") is not None and sys.platform == "linux"
    needs("chromium", present=is_there, install=install)
    from playwright.sync_api import sync_playwright

    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=path, args=arguments)
        yield made
        made.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page in a context of its own. The test fails when the page had an error, or broke its security policy."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(SECONDS * 1000)
    made = context.new_page()
    errors: list[str] = []

    def failed(error: Any) -> None:
        errors.append(str(error))

    def said(message: Any) -> None:
        if "Content Security Policy" in message.text:
            errors.append(message.text)

    made.on("pageerror", failed)
    made.on("console", said)
    yield made
    context.close()
    assert not errors, "\n".join(errors)
