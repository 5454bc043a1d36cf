"""An agent that tidies a folder: it works on a copy, each step all or nothing, and shows a diff before anything counts.

The model is a script here, so that the example runs anywhere; an adapter sends the same calls.
"""

import json
import tempfile
from pathlib import Path

from weakincentives import Session
from weakincentives.adapters.tool_executor import ToolExecutor
from weakincentives.contrib.tools import HostMount, VfsConfig, VfsToolsSection
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate
from weakincentives.runtime import ToolCall

MESS = {
    "invoice-march.txt": "Invoice 17\nTotal: 120 EUR\n",
    "IMG_0042.jpg": b"\xff\xd8\xff\xe0\0\x10JFIF",
    "todo.txt": "- sort the invoices\n- call Ana\n",
    "invoice-april.txt": "Invoice 18\nTotal: 90 EUR\n",
}

# What a model would send, one call after the other; two of them go wrong.
CALLS: list[tuple[str, dict[str, str]]] = [
    ("list_directory", {}),
    ("grep_files", {"pattern": "^Invoice"}),
    ("move_file", {"src": "invoice-march.txt", "dst": "invoices/2025-03.txt"}),
    ("move_file", {"src": "invoice-april.txt", "dst": "invoices/2025-03.txt"}),
    ("move_file", {"src": "invoice-april.txt", "dst": "invoices/2025-04.txt"}),
    ("move_file", {"src": "IMG_0042.jpg", "dst": "pictures/IMG_0042.jpg"}),
    ("edit_file", {"path": "todo.txt", "old_text": "- sort the invoices\n", "new_text": ""}),
    ("read_file", {"path": "todo.txt"}),
    ("edit_file", {"path": "todo.txt", "old_text": "- sort the invoices\n", "new_text": ""}),
]

with tempfile.TemporaryDirectory() as folder:
    root = Path(folder)
    for name, content in MESS.items():
        (root / name).write_bytes(content if isinstance(content, bytes) else content.encode())

    vfs = VfsToolsSection(config=VfsConfig(mounts=[HostMount(root)], allowed_roots=[root]))
    task = MarkdownSection(title="Task", template="Put the files into folders by what they are. Lose nothing.")
    prompt = Prompt(PromptTemplate[None](ns="examples", key="organiser", sections=[task, vfs]))

    session = Session()
    with ToolExecutor(prompt=prompt, session=session) as executor:
        for number, (tool, arguments) in enumerate(CALLS):
            reply = executor.execute(ToolCall(f"call_{number}", tool, json.dumps(arguments)))
            print(f"> {tool} {arguments}\n{reply.text}\n")

    print("the folder itself is as it was:", sorted(path.name for path in root.iterdir()))
    print(f"what would change:\n{vfs.diff()}")
    done = vfs.export(root)
    for name in done.removed:  # taking files away is the user's decision, not the library's
        (root / name).unlink()
    print("after the export:", sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()))
