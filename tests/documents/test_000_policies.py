"""000: "Tool Policies"."""

from weakincentives.filesystem import Filesystem
from weakincentives.filesystem.memory import InMemoryFilesystem
from weakincentives.prompt import ToolContext, ToolInvoked
from weakincentives.resources import ResourceRegistry


def test_tool_policies_built_in_policies():
    from weakincentives.prompt import (
        SequentialDependencyPolicy,
        ReadBeforeWritePolicy,
    )

    # Require 'test' and 'build' before 'deploy'
    deploy_policy = SequentialDependencyPolicy(
        dependencies={
            "deploy": frozenset({"test", "build"}),
        }
    )

    # Require reading a file before overwriting it (new files allowed)
    read_first = ReadBeforeWritePolicy()

    fs = InMemoryFilesystem()
    fs.write("config.json", "{}")
    context = ToolContext(resources=ResourceRegistry.build({Filesystem: fs}))
    assert "missing required tools: build, test" in deploy_policy.check("deploy", None, context)
    for name in ("test", "build"):
        context.session.dispatch(ToolInvoked(tool_name=name, success=True))
    assert deploy_policy.check("deploy", None, context) is None
    assert "without reading it first" in read_first.check("write_file", {"path": "config.json"}, context)
    assert read_first.check("write_file", {"path": "new.json"}, context) is None
