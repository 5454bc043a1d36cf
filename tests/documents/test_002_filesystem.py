"""002, the lines of its handlers that use a filesystem; the handlers as a whole are tested with the tools."""

from types import SimpleNamespace

import pytest
from weakincentives.filesystem import Filesystem, InMemoryFilesystem


@pytest.fixture
def fs() -> Filesystem:
    return InMemoryFilesystem({"src/main.py": "print('hi')", "docs/main.md": "# Main"})


def test_accessing_resources(fs):
    response = SimpleNamespace(text='{"ok": true}')

    # Filesystem is the most common resource for workspace agents
    fs.write("output.json", response.text)

    assert fs.read("/workspace/output.json") == '{"ok": true}'


def test_filesystem_resource(fs):
    params = SimpleNamespace(path="src/main.py")

    content = fs.read(params.path)

    assert content == "print('hi')"


def test_search_with_preconditions(fs):
    params = SimpleNamespace(query="main", limit=1)

    results = fs.search(params.query, limit=params.limit)

    assert tuple(results) == ("docs/main.md",)
    params = SimpleNamespace(query="MAIN")
    matches = fs.search(params.query)
    assert tuple(matches) == ("docs/main.md", "src/main.py")


def test_delete_with_external_validation(fs):
    params = SimpleNamespace(path="/workspace/src/main.py")

    # Check if file exists (external filesystem check)
    assert fs.exists(params.path)
    # Check if file is protected (external metadata check)
    assert not fs.is_readonly(params.path)
    assert fs.readonly().is_readonly(params.path)
    # Validation passed - execute deletion
    fs.delete(params.path)

    assert not fs.exists(params.path)


def test_idempotent_initialization(fs):
    params = SimpleNamespace(config="debug=1")

    def initialize() -> bool:
        # Check if already initialized
        if fs.exists("/workspace/.initialized"):
            config = fs.read("/workspace/.initialized")
            assert config == params.config
            return False

        # Not initialized - proceed with initialization
        fs.mkdir("/workspace/src")
        fs.mkdir("/workspace/tests")
        fs.write("/workspace/.initialized", params.config)
        return True

    assert initialize()
    assert not initialize()
    assert [stat.path for stat in fs.list("/workspace")] == [".initialized", "docs", "src", "tests"]


def test_transaction_rollback(fs):
    before = fs.snapshot()
    fs.write("/workspace/temp.txt", "intermediate data")

    fs.restore(before)

    # Verify filesystem rolled back
    assert not fs.exists("/workspace/temp.txt")
