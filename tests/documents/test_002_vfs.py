"""002, the blocks on the VFS suite; `/tmp/workspace` is a folder of the test's own."""

from dataclasses import dataclass

import pytest
from weakincentives.filesystem import InMemoryFilesystem
from weakincentives.contrib.tools import VfsConfig
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate, ReadBeforeWritePolicy, ToolContext, ToolResult
from weakincentives.runtime import Session
from weakincentives.testing import make_context


@pytest.fixture
def session():
    return Session()


@pytest.fixture
def vfs_config():
    return VfsConfig(files={"src/main.py": "print('hi')"})


@dataclass(frozen=True)
class ReadFileParams:
    path: str


@dataclass(frozen=True)
class ReadFileResult:
    content: str

    def render(self) -> str:
        return self.content


@dataclass(frozen=True)
class Params:
    topic: str


def test_filesystem_resource(session, vfs_config):
    from weakincentives.contrib.tools import VfsToolsSection
    from weakincentives.filesystem import Filesystem

    # VFS installs a Filesystem resource automatically
    vfs = VfsToolsSection(session=session, config=vfs_config)

    # Tools in this section can access it via context
    def read_file_handler(
        params: ReadFileParams,
        *,
        context: ToolContext
    ) -> ToolResult[ReadFileResult]:
        fs = context.resources.get(Filesystem)
        content = fs.read(params.path)
        return ToolResult.ok(ReadFileResult(content=content))

    prompt = Prompt(PromptTemplate(ns="docs", key="files", sections=[vfs]))
    with prompt.resources as resources:
        context = make_context(session=session, fs=resources.get(Filesystem))
        result = read_file_handler(ReadFileParams("src/main.py"), context=context)
    assert result.value == ReadFileResult("print('hi')")


def test_example_vfs_tool_suite(session, tmp_path):
    template = PromptTemplate(
        ns="docs", key="task", sections=[MarkdownSection[Params](title="Task", template="About ${topic}.")]
    )
    params = Params("files")
    workspace = str(tmp_path / "workspace")

    from weakincentives.contrib.tools import VfsToolsSection, VfsConfig

    # Create the section with configuration
    vfs = VfsToolsSection(
        session=session,
        config=VfsConfig(root=workspace),
    )

    # Add to prompt
    prompt = Prompt(template).bind(params, sections=[vfs])

    # Tools in the section automatically get Filesystem resource
    # read_file, write_file, list_directory, etc.
    names = [tool.name for tool in prompt.tools()]
    assert {"read_file", "write_file", "list_directory", "delete_file"} <= set(names)
    # The section provides: instructions, resource, policies
    assert "Use these tools to read and write files" in str(prompt.render())
    [policy] = prompt.policies_for("write_file")
    assert isinstance(policy, ReadBeforeWritePolicy)
    from weakincentives.filesystem import Filesystem

    prompt.resources.get(Filesystem).write("a.txt", "1")
    assert (tmp_path / "workspace" / "a.txt").read_text() == "1"
    vfs.close()


def test_default_policies_on_contrib_sections(session, vfs_config):
    from weakincentives.contrib.tools import VfsToolsSection

    # ReadBeforeWritePolicy is applied automatically
    vfs = VfsToolsSection(session=session, config=vfs_config)

    assert [type(policy) for policy in vfs.policies] == [ReadBeforeWritePolicy]


def test_the_suite_is_in_memory_without_a_root(session):
    from weakincentives.contrib.tools import VfsToolsSection

    vfs = VfsToolsSection(session=session)
    vfs.filesystem.write("a.txt", "1")
    assert "InMemoryFilesystem" in repr(vfs.filesystem)
    assert InMemoryFilesystem().search("") == []
