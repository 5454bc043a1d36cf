"""An agent that tidies a folder: it plans, works on a copy, and shows a diff before anything counts.

python examples/file_organiser.py                                      a scripted model on a folder of its own
python examples/file_organiser.py --model openai:gpt-5 ~/Downloads     a real one on yours; asks before it exports
"""

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path

from weakincentives.cli.models import make_adapter
from weakincentives.contrib.tools import (
    HostMount,
    Plan,
    PlanningStrategy,
    PlanningToolsSection,
    VfsConfig,
    VfsToolsSection,
)
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate
from weakincentives.runtime import MainLoop, Session, ToolInvoked
from weakincentives.testing import ScriptedAdapter, call, say


@dataclass(frozen=True)
class Folder:
    path: str


class Organiser(MainLoop[Folder, None]):
    """One folder per request; `files` are those of the latest, as the agent left them."""

    files: VfsToolsSection

    def prepare(self, request: Folder) -> tuple[Prompt[None], Session]:
        root = Path(request.path)
        session = Session(bus=self.bus)
        task = MarkdownSection(
            title="Task",
            template="Put the files into folders by what they are, named by when they are from. Lose nothing.",
        )
        planning = PlanningToolsSection(session=session, strategy=PlanningStrategy.PLAN_ACT_REFLECT)
        self.files = VfsToolsSection(
            session=session, config=VfsConfig(mounts=[HostMount(root, max_bytes=50_000_000)], allowed_roots=[root])
        )
        template = PromptTemplate[None](ns="examples", key="organiser", sections=[task, planning, self.files])
        return Prompt(template), session


MESS = {
    "invoice-march.txt": b"Invoice 17\nTotal: 120 EUR\n",
    "IMG_0042.jpg": b"\xff\xd8\xff\xe0\0\x10JFIF",
    "todo.txt": b"- sort the invoices\n- call Ana\n",
    "invoice-april.txt": b"Invoice 18\nTotal: 90 EUR\n",
}
SCRIPT = [
    [say("Let me look first."), call("list_directory"), call("grep_files", pattern="^Invoice")],
    call(
        "planning_setup_plan",
        objective="A folder in which everything has its place",
        initial_steps=["Invoices by month", "Pictures", "The list of what to do"],
    ),
    [
        call("move_file", src="invoice-march.txt", dst="invoices/2025-03.txt"),
        call("move_file", src="invoice-april.txt", dst="invoices/2025-03.txt"),  # fails: that name is taken
    ],
    call("move_file", src="invoice-april.txt", dst="invoices/2025-04.txt"),
    call("planning_update_step", step_id=1, status="done", note="Both were about to get one name; nothing was lost."),
    [
        call("move_file", src="IMG_0042.jpg", dst="pictures/IMG_0042.jpg"),
        call("planning_update_step", step_id=2, status="done"),
    ],
    call("edit_file", path="todo.txt", old_text="- sort the invoices\n", new_text=""),  # refused: it was not read
    call("read_file", path="todo.txt"),
    call("edit_file", path="todo.txt", old_text="- sort the invoices\n", new_text=""),
    call("planning_update_step", step_id=3, status="done"),
    say("Invoices and pictures have folders of their own, and one task less is on your list."),
]


def export(files: VfsToolsSection, root: Path) -> None:
    """Write the new files; taking the old ones away is the user's decision, so it stands here."""
    for name in files.export(root).removed:
        (root / name).unlink()


def organise(root: Path, model: str) -> None:
    organiser = Organiser(adapter=ScriptedAdapter(*SCRIPT) if model == "scripted" else make_adapter(model))
    response, session = organiser.execute(Folder(str(root)))
    for event in session[ToolInvoked].all():
        print(f"  {event.outcome:10} {event.tool_name}: {' '.join(event.rendered_output.split())[:80]}")
    plan = session[Plan].latest()
    print(f"\n{plan.render() if plan else 'It made no plan.'}\n\n-> {response.text}\n")
    print(f"The folder is as it was. What the agent would change:\n\n{organiser.files.diff()}")
    if model != "scripted" and input("Do it? [y/N] ") != "y":
        return
    export(organiser.files, root)
    print("Now it has:", sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="a folder to tidy; one with four files unless given")
    parser.add_argument("--model", default="scripted", help="scripted, openai:NAME, anthropic:NAME, litellm:NAME")
    arguments = parser.parse_args()
    if arguments.folder is not None:
        organise(arguments.folder, arguments.model)
        return
    with tempfile.TemporaryDirectory() as folder:
        for name, content in MESS.items():
            Path(folder, name).write_bytes(content)
        organise(Path(folder), arguments.model)


if __name__ == "__main__":
    main()
