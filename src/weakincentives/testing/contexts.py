"""Running tools in tests: contexts for calling a handler directly, and single calls through the whole engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self, TypeVar, cast, overload

from ..filesystem import Filesystem, InMemoryFilesystem
from ..loop.response import OpenCall
from ..prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolContext, ToolPolicy, ToolResult
from ..prompt.tool_context import ContextResources
from ..resources import ResourceRegistry
from ..runtime import Ledger, ToolCall, ToolReply
from ..runtime.executor import ToolExecutor
from ..serde import dump_json
from ..session import Session

P = TypeVar("P")
R = TypeVar("R")


def make_session(**options: Any) -> Session:
    """A fresh session; the options are `Session`'s."""
    return Session(**options)


def make_vfs(files: Mapping[str, str | bytes] | None = None) -> InMemoryFilesystem:
    """Files in memory."""
    return InMemoryFilesystem(files or {})


def make_context(
    *,
    session: Session | None = None,
    fs: Filesystem | None = None,
    resources: Mapping[Any, object] | ResourceRegistry | None = None,
    **fields: Any,
) -> MadeContext:
    """A context for calling a handler directly: a session, a `Filesystem`, and whatever else is given.

    The resources are instances or `Binding`s by type, or a `ResourceRegistry`; what has a provider is built when the
    handler asks for it, and closed at the end of `with make_context(...) as context:`. A `Filesystem` among them
    stands instead of `fs`. The handler runs without a transaction; `transactional(tool)` has one.

    >>> make_context().filesystem.exists("notes.txt")
    False
    """
    registry = ResourceRegistry.build({Filesystem: make_vfs() if fs is None else fs})
    if resources is not None:
        given = resources if isinstance(resources, ResourceRegistry) else ResourceRegistry.build(resources)
        registry = registry.merge(given)
    return MadeContext(session=make_session() if session is None else session, resources=registry, **fields)


class MadeContext(ToolContext):
    """What `make_context` gives: a context that can close its resources, which no call does."""

    __slots__ = ()

    @property
    def filesystem(self) -> Filesystem:
        """The bound `Filesystem`; there always is one."""
        return self.resources.get(Filesystem)

    def close(self) -> None:
        """Close what was built for it, newest first; what was handed in stays its owner's."""
        if isinstance(self.resources, ContextResources):
            self.resources.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def make_context_with_files(paths: Iterable[str], **options: Any) -> MadeContext:
    """`make_context` whose filesystem holds these files, each with its own path as content."""
    return make_context(fs=make_vfs({path: path for path in paths}), **options)


@overload
def execute_tool(tool: OpenCall, /, *, session: Session | None = None) -> ToolReply: ...
@overload
def execute_tool(
    tool: Tool[P, R],
    arguments: P | Mapping[str, Any] | str | None = None,
    *,
    session: Session | None = None,
    resources: Mapping[Any, object] | ResourceRegistry | None = None,
    policies: Iterable[ToolPolicy] = (),
    effect_ledger: Ledger | None = None,
    call_id: str = "call_1",
) -> ToolReply: ...
def execute_tool(
    tool: Any,
    arguments: Any = None,
    *,
    session: Session | None = None,
    resources: Mapping[Any, object] | ResourceRegistry | None = None,
    policies: Iterable[ToolPolicy] = (),
    effect_ledger: Ledger | None = None,
    call_id: str = "call_1",
) -> ToolReply:
    """One call through the whole engine: parsed, asked, undone when it fails, recorded in the session.

    The arguments are params, a mapping, JSON text, or None for a tool without parameters. With an `effect_ledger` an
    idempotent tool runs once per key over all calls that share it; without one, over those of the session.

    A call that an adapter in manual mode handed out runs where it was asked for; `SessionError` when `session` is
    another one.
    """
    if isinstance(tool, OpenCall):
        return tool.execute(session=session)
    text = arguments
    if text is not None and not isinstance(text, str | Mapping):
        text = dump_json(text)
    section = MarkdownSection(title="Tool", template="", tools=[tool], policies=tuple(policies))
    prompt: Prompt[Any] = Prompt(PromptTemplate[Any](ns="testing", key="execute-tool", sections=[section]))
    if isinstance(resources, ContextResources):
        prompt.resources.context = resources.context
    elif resources is not None:
        prompt = prompt.bind(resources=resources)
    session = make_session() if session is None else session
    with ToolExecutor(prompt=prompt, session=session, effect_ledger=effect_ledger) as executor:
        return executor.execute(ToolCall(call_id, tool.name, text))


def transactional(tool: Tool[P, R]) -> Callable[..., ToolResult[Any]]:
    """The tool as a handler that is called directly, `(params, *, context)`, and undone when it fails.

    It works on the context's session and resources and records its `ToolInvoked` there.
    """

    def call(params: P, *, context: ToolContext) -> ToolResult[Any]:
        return execute_tool(
            tool, params, session=cast(Any, context.session), resources=cast(Any, context.resources)
        ).result

    return call
