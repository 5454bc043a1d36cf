"""A question about data, answered by untrusted code that the model wrote.

The model is a script here, so that the example runs anywhere; an adapter sends the same calls.
"""

import json

from weakincentives import Session
from weakincentives.contrib.tools import PythonConfig, PythonSection, VfsConfig, VfsToolsSection
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate
from weakincentives.runtime import ToolCall
from weakincentives.runtime.executor import ToolExecutor

SALES = """\
month,region,revenue
2025-01,north,1200.50
2025-01,south,800.00
2025-02,north,950.25
2025-02,south,1100.75
"""

LOAD = """\
import csv
rows = list(csv.DictReader(open('sales.csv')))
"""

# What a model would send: a guess that the sandbox does not know, a bug, something malicious, and the answer.
ATTEMPTS = [
    {"code": "import pandas\npandas.read_csv('sales.csv')", "reads": ["sales.csv"]},
    {
        "code": LOAD + "open('report.md', 'w').write('# Half a report')\nrows[0]['turnover']",
        "reads": ["sales.csv"],
        "writes": ["report.md"],
    },
    {"code": "import os\nos.environ"},
    {
        "code": LOAD
        + """\
totals = {}
for row in rows:
    totals[row['region']] = totals.get(row['region'], 0) + float(row['revenue'])
with open('report.md', 'w') as report:
    for region, total in sorted(totals.items()):
        report.write(f'- {region}: {total:.2f}\\n')
max(totals, key=lambda region: totals[region])
""",
        "reads": ["sales.csv"],
        "writes": ["report.md"],
    },
]

files = VfsToolsSection(config=VfsConfig(files={"sales.csv": SALES}))
python = PythonSection(config=PythonConfig(deterministic=True))
task = MarkdownSection(title="Task", template="Which region sold the most? Write the totals to report.md.")
prompt = Prompt(PromptTemplate[None](ns="examples", key="data-question", sections=[task, files, python]))


def main() -> None:
    with python, ToolExecutor(prompt=prompt, session=Session()) as executor:
        for number, arguments in enumerate(ATTEMPTS, 1):
            reply = executor.execute(ToolCall(f"call_{number}", "evaluate_python", json.dumps(arguments)))
            there = files.filesystem.exists("report.md")
            print(f"attempt {number}: {reply.text}\n(report.md {'is there' if there else 'does not exist'})\n")
    print(files.filesystem.read("report.md"))


if __name__ == "__main__":
    main()
