"""002: "Rate Limiting and Quotas", "Built-in Policies" and "Custom Policies"."""

import time

from weakincentives.filesystem import Filesystem
from weakincentives.filesystem.memory import InMemoryFilesystem
from weakincentives.prompt import ToolContext, ToolInvoked, ToolResult
from tests.policies import asked
from weakincentives.resources import ResourceRegistry


def test_rate_limiting_and_quotas():
    from weakincentives.prompt import MarkdownSection, Tool

    api_call_tool = Tool[None, None](name="api_call", description="Call the API.")

    class RateLimitPolicy:
        """Policy enforcing rate limits."""

        def __init__(self, max_calls_per_minute: int):
            self.max_calls_per_minute = max_calls_per_minute

        def check(self, tool_name: str, params: object, context: ToolContext) -> str | None:
            """Check if rate limit exceeded."""
            session = context.session
            now = time.time()
            one_minute_ago = now - 60

            # Count recent calls
            recent_calls = [
                event
                for event in session[ToolInvoked].all()
                if event.tool_name == tool_name and event.timestamp >= one_minute_ago
            ]

            if len(recent_calls) >= self.max_calls_per_minute:
                return (
                    f"Rate limit exceeded: {len(recent_calls)} calls to {tool_name} in last minute\n"
                    f"Maximum: {self.max_calls_per_minute} calls per minute\n"
                    f"Wait 60 seconds before retrying"
                )

            return None  # Allow

    # Attach to section
    section = MarkdownSection(
        title="External API",
        key="api",
        template="...",
        tools=(api_call_tool,),
        policies=(RateLimitPolicy(max_calls_per_minute=10),),
    )

    context = ToolContext()
    (policy,) = section.policies
    for _ in range(10):
        assert asked((policy,), "api_call", None, context) is None
        context.session.dispatch(ToolInvoked(tool_name="api_call", success=True, timestamp=time.time()))
    assert asked((policy,), "api_call", None, context) == (
        "Rate limit exceeded: 10 calls to api_call in last minute\n"
        "Maximum: 10 calls per minute\n"
        "Wait 60 seconds before retrying\n"
        "Refused by RateLimitPolicy."
    )

    # The built-in policy of that name takes the same argument and says the same.
    from weakincentives.prompt import RateLimitPolicy as BuiltIn

    assert (
        BuiltIn(max_calls_per_minute=10)
        .check("api_call", None, context)
        .startswith("Rate limit exceeded: 10 calls to api_call in last minute\nMaximum: 10 calls per minute\nWait ")
    )


def test_sequentialdependencypolicy():
    from weakincentives.prompt import SequentialDependencyPolicy

    # Require 'test' and 'build' before 'deploy'
    deploy_policy = SequentialDependencyPolicy(
        dependencies={
            "deploy": frozenset({"test", "build"}),
            "release": frozenset({"deploy"}),  # Can chain
        }
    )

    context = ToolContext()
    assert deploy_policy.check("deploy", None, context) == (
        "Cannot call 'deploy' - missing required tools: build, test\nCall these tools first, then retry deploy."
    )
    for name in ("test", "build"):
        context.session.dispatch(ToolInvoked(tool_name=name, success=True))
    assert deploy_policy.check("deploy", None, context) is None
    assert "deploy" in deploy_policy.check("release", None, context)


def test_readbeforewritepolicy():
    """The printed flow, each call as the policy sees it."""
    fs = InMemoryFilesystem()
    fs.write("config.json", "content")
    context = ToolContext(resources=ResourceRegistry.build({Filesystem: fs}))
    answers = []

    def read_file(**params):
        read_first.on_result("read_file", params, ToolResult.ok(fs.read(params["path"])), context)

    def write_file(**params):
        answers.append(read_first.check("write_file", params, context))
        if answers[-1] is None:
            fs.write(params["path"], params["content"])
            read_first.on_result("write_file", params, ToolResult.ok(None), context)

    from weakincentives.prompt import ReadBeforeWritePolicy

    read_first = ReadBeforeWritePolicy()

    # This fails - didn't read config.json first
    write_file(path="config.json", content="new content")
    # Error: Cannot write to config.json without reading it first

    # This works - read before write
    read_file(path="config.json")
    write_file(path="config.json", content="updated content")
    # Success

    # This works - new file
    write_file(path="new_file.txt", content="content")
    # Success

    assert answers[0].startswith("Cannot write to config.json without reading it first")
    assert answers[1:] == [None, None]


def test_custom_policies():
    from typing import Protocol
    from weakincentives.prompt import ToolContext

    class ToolPolicy(Protocol):
        """Protocol for tool execution policies."""

        def check(self, tool_name: str, params: object, context: ToolContext) -> str | None:
            """
            Check if tool call is allowed.

            Returns:
                None if allowed, error message string if rejected.
            """
            ...

    # Example: Quota policy
    class QuotaPolicy:
        def __init__(self, max_calls: int):
            self.max_calls = max_calls

        def check(self, tool_name: str, params: object, context: ToolContext) -> str | None:
            session = context.session
            calls = len(list(session[ToolInvoked].all()))

            if calls >= self.max_calls:
                return f"Quota exceeded: {calls}/{self.max_calls} calls used"

            return None  # Allow

    context = ToolContext()
    policy = QuotaPolicy(max_calls=1)
    assert asked((policy,), "any", None, context) is None
    context.session.dispatch(ToolInvoked(tool_name="any", success=True))
    assert (
        asked((policy,), "any", None, context) == "Quota exceeded: 1/1 calls used\nRefused by QuotaPolicy."
    )

    from weakincentives.prompt import QuotaPolicy as BuiltIn

    assert BuiltIn(max_calls=1).check("any", None, context).startswith("Quota exceeded: 1/1 calls used")


def test_key_behaviors():
    """Policies are asked in order; the first violation stops the call."""
    from weakincentives.prompt import (
        MarkdownSection,
        QuotaPolicy,
        ReadBeforeWritePolicy,
        SequentialDependencyPolicy,
        Tool,
    )

    deploy_tool = Tool[None, None](name="deploy", description="Deploy.")
    quota_policy, read_before_write = QuotaPolicy(1), ReadBeforeWritePolicy()
    deploy_policy = SequentialDependencyPolicy({"deploy": frozenset({"test"})})

    section = MarkdownSection(
        title="Production Ops",
        key="ops",
        template="...",
        tools=(deploy_tool,),
        policies=(
            quota_policy,  # Check quota first
            deploy_policy,  # Then check dependencies
            read_before_write,  # Then check file safety
        ),
    )

    context = ToolContext()
    ask = lambda: asked(section.policies, "deploy", None, context)
    assert ask().endswith("Refused by SequentialDependencyPolicy.")
    context.session.dispatch(ToolInvoked(tool_name="other", success=True))
    assert ask().endswith("Refused by QuotaPolicy.")
