"""A code review with a typed answer: python examples/code_review.py --model scripted"""

import argparse
from dataclasses import dataclass, field
from typing import Literal

from weakincentives.cli.models import make_adapter
from weakincentives.contrib.tools import VfsConfig, VfsToolsSection
from weakincentives.filesystem import Filesystem, InMemoryFilesystem
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate
from weakincentives.runtime import MainLoop, MainLoopConfig, Session
from weakincentives.testing import ScriptedAdapter, call, say


@dataclass(frozen=True)
class Change:
    path: str
    author: str


@dataclass(frozen=True)
class Finding:
    line: int = field(metadata={"ge": 1})
    severity: Literal["nit", "bug", "danger"]
    text: str


@dataclass(frozen=True)
class Review:
    verdict: Literal["approve", "request changes"]
    summary: str
    findings: tuple[Finding, ...] = ()


template = PromptTemplate[Review](
    ns="examples",
    key="code-review",
    sections=[
        MarkdownSection[Change](
            title="Task",
            template="Review `${path}` by ${author}. Read it first. Report what is wrong, with the line it is in.",
        ),
        VfsToolsSection(config=VfsConfig(shared=True, read_only=True)),
    ],
)


class Reviewer(MainLoop[Change, Review]):
    def prepare(self, request: Change) -> tuple[Prompt[Review], Session]:
        return Prompt(template).bind(request), Session(bus=self.bus)


FILES = {
    "shop/pay.py": """\
def pay(account, cents):
    query = f"UPDATE accounts SET cents = cents - {cents} WHERE name = '{account}'"
    database.execute(query)
""",
}
SCRIPT = [
    call("read_file", path="shop/pay.py"),
    # A model that answers in prose is told what was wrong, and answers again.
    say("Looks dangerous to me!"),
    say(
        """```json
        {"verdict": "request changes",
         "summary": "The query is built from text that users choose.",
         "findings": [{"line": 2, "severity": "danger", "text": "SQL injection through account; bind parameters."},
                      {"line": 1, "severity": "bug", "text": "Negative cents give money away."}]}
        ```"""
    ),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="scripted", help="scripted, openai:NAME, anthropic:NAME, litellm:NAME")
    model = parser.parse_args().model
    adapter = ScriptedAdapter(*SCRIPT) if model == "scripted" else make_adapter(model)
    config = MainLoopConfig(resources={Filesystem: InMemoryFilesystem(FILES)})
    response, _ = Reviewer(adapter=adapter, config=config).execute(Change("shop/pay.py", "Mallory"))
    review = response.output
    assert isinstance(review, Review)
    print(f"{review.verdict}: {review.summary}")
    for finding in sorted(review.findings, key=lambda finding: finding.line):
        print(f"  line {finding.line}: {finding.severity}: {finding.text}")


if __name__ == "__main__":
    main()
