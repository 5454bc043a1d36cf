"""002, the table of contributed tool suites; 000 names them, too."""

import json

from weakincentives.adapters.tool_executor import ToolExecutor
from weakincentives.prompt import Prompt
from weakincentives.runtime import Session, ToolCall


def test_asteval_section_is_safe_python_eval_without_a_slice():
    # | `AstevalSection` | Safe Python eval | None |
    from weakincentives.contrib.tools import AstevalSection

    session = Session()
    with AstevalSection(session=session) as section:
        with ToolExecutor(prompt=Prompt(name="calculator", sections=[section]), session=session) as executor:
            reply = executor.execute(ToolCall("1", "evaluate_python", json.dumps({"code": "6 * 7"})))
    assert reply.text == "OK\nValue: 42"


def test_each_section_bundles_the_instructions_with_the_tools():
    from weakincentives.contrib.tools import AstevalSection

    text = Prompt(name="calculator", sections=[AstevalSection()]).render().text
    assert "Use `evaluate_python` to calculate" in text
