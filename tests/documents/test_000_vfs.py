"""000, what it says of the contributed suites: resource, default policy, rollback in memory and on disk."""

import json

import pytest
from weakincentives.adapters.tool_executor import ToolExecutor
from weakincentives.contrib.tools import VfsConfig, VfsToolsSection
from weakincentives.filesystem import Filesystem
from weakincentives.prompt import Prompt, ReadBeforeWritePolicy, Tool, ToolContext, ToolResult, ToolsSection
from weakincentives.runtime import Session, ToolCall


def test_many_contributed_tool_suites_install_a_filesystem():
    vfs = VfsToolsSection(session=Session())
    assert Prompt(name="files", sections=[vfs]).resources.get(Filesystem) is vfs.filesystem


def test_default_policies_on_contrib_sections():
    # `VfsToolsSection` and `PodmanSandboxSection` apply `ReadBeforeWritePolicy` by default.
    assert isinstance(VfsToolsSection(session=Session()).policies[0], ReadBeforeWritePolicy)


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_transactional_tool_execution(where, tmp_path):
    # Filesystem changes (both in-memory VFS and disk-backed) are rolled back
    def half_done(params: None, *, context: ToolContext) -> ToolResult[None]:
        fs = context.filesystem
        fs.write("kept.txt", "overwritten")
        fs.write("new.txt", "half")
        raise RuntimeError("the other half failed")

    with VfsToolsSection(session=Session(), config=VfsConfig(root=tmp_path if where == "disk" else None)) as vfs:
        vfs.filesystem.write("kept.txt", "kept")
        tools = ToolsSection(title="Work", tools=[Tool[None, None](name="work", description="Work.", handler=half_done)])
        with ToolExecutor(prompt=Prompt(name="t", sections=[vfs, tools]), session=Session()) as executor:
            reply = executor.execute(ToolCall("1", "work", json.dumps({})))
        assert not reply.result.success
        assert vfs.filesystem.search("") == ["kept.txt"]
        assert vfs.filesystem.read("kept.txt") == "kept"
