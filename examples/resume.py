"""Kill it, run it again: one refund.

    python examples/resume.py

starts an agent in a process of its own and kills it with SIGKILL, after the money was refunded and in the middle of
writing a letter. Then it runs the same program again. The agent goes on where it was: what the model had said is not
asked again, the refund is not repeated, and the half letter is gone before the letter is written.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from weakincentives import MainLoop, Session
from weakincentives.adapters import ModelMessage, ModelRequest, ModelTurn, TurnAdapter
from weakincentives.filesystem import Filesystem, HostFilesystem
from weakincentives.prompt import MarkdownSection, Prompt, Tool, ToolAnnotations, ToolContext, ToolResult
from weakincentives.runtime import IdempotencyConfig, MainLoopConfig, SqliteRunStore
from weakincentives.runtime.messages import CallMessage


@dataclass(frozen=True)
class Ticket:
    number: int
    text: str


@dataclass(frozen=True)
class Refund:
    order: str
    cents: int


@dataclass(frozen=True)
class Letter:
    to: str
    text: str


class Desk(MainLoop[Ticket, str]):
    """Answers tickets. `home` is the world outside: the bank's book, and a list of what the model was asked."""

    def __init__(self, home: Path, config: MainLoopConfig) -> None:
        super().__init__(Model(home), config=config)
        self._home = home

    def prepare(self, request: Ticket) -> tuple[Prompt[str], Session]:
        refund = Tool[Refund, str](
            name="refund", description="Refund an order.", handler=self._refund, idempotency=IdempotencyConfig()
        )
        local = ToolAnnotations(open_world=False)  # only files: undone when the process ends, so it can run again
        letter = Tool[Letter, str](
            name="letter", description="Write a letter.", handler=self._letter, annotations=local
        )
        task = MarkdownSection(
            title="Task", template=f"Ticket {request.number}: {request.text}", tools=[refund, letter]
        )
        return Prompt(name="desk", sections=[task]), Session(bus=self.bus)

    def _refund(self, params: Refund) -> ToolResult[str]:
        add_line(self._home / "bank.txt", f"{params.order} {params.cents}")
        return ToolResult.ok(f"R-{params.order}", message="Refunded.")

    def _letter(self, params: Letter, *, context: ToolContext) -> ToolResult[str]:
        files = context.resources.get(Filesystem)
        files.write("letter.txt", f"Dear {params.to},\n")
        print("half a letter is written", flush=True)
        if not (self._home / "killed").exists():
            time.sleep(600)  # the printer is slow today
        files.write("letter.txt", f"Dear {params.to},\n{params.text}\n")
        return ToolResult.ok("letter.txt", message="Written.")


class Model(TurnAdapter):
    """Stands for a model: refund, letter, done. It notes each question, since each of them costs money."""

    def __init__(self, home: Path) -> None:
        super().__init__()
        self._home = home

    def ask(self, request: ModelRequest) -> ModelTurn:
        turn = sum(isinstance(message, ModelMessage) for message in request.messages) + 1
        add_line(self._home / "asked.txt", f"turn {turn}")
        match turn:
            case 1:
                call = CallMessage("c1", "refund", '{"order": "A-7", "cents": 1999}')
            case 2:
                call = CallMessage("c2", "letter", '{"to": "Ada", "text": "We have refunded 19.99."}')
            case _:
                return ModelTurn("Refunded, and the letter is written.")
        return ModelTurn("", (call,), stop_reason="tool_use")


def one_process(home: Path) -> None:
    """The whole program. It says nothing of killing or resuming: the name of the run is enough."""
    with SqliteRunStore(home / "runs.db") as store, HostFilesystem(home / "files") as files:
        config = MainLoopConfig(runs=store, effect_ledger=store.ledger(), resources={Filesystem: files})
        response, _ = Desk(home, config).execute(Ticket(4711, "My tea came broken."), run_id="ticket-4711")
    print(f"answer: {response.text}", flush=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        (home / "files").mkdir()
        command = [sys.executable, __file__, name]

        print("--- run it, and kill it in the middle")
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            print(process.stdout.readline(), end="")
            process.kill()
        print(f"killed: exit code {process.returncode}, on the disk: {(home / 'files' / 'letter.txt').read_text()!r}")
        (home / "killed").touch()

        print("--- run it again", flush=True)
        subprocess.run(command, check=True)

        print("--- what happened")
        asked, paid = read_lines(home / "asked.txt"), read_lines(home / "bank.txt")
        with SqliteRunStore(home / "runs.db") as store:
            outcomes = [f"{step.tool} {step.outcome}" for step in store.open("ticket-4711").calls()]
        print(f"asked: {', '.join(asked)}")
        print(f"calls: {', '.join(outcomes)}")
        print(f"refunds: {len(paid)}")
        print(f"letter: {(home / 'files' / 'letter.txt').read_text()!r}")
    assert (len(paid), asked) == (1, ["turn 1", "turn 2", "turn 3"])


def add_line(path: Path, line: str) -> None:
    with path.open("a") as file:
        file.write(f"{line}\n")


def read_lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


if __name__ == "__main__":
    if len(sys.argv) == 2:
        one_process(Path(sys.argv[1]))
    else:
        main()
