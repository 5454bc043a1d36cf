"""Each public name and its one documented home. Some can be imported from elsewhere too; the documentation uses these.

A new public name is added here. `tests/core/test_names.py` compares the table with what the packages export.
"""

from __future__ import annotations

from collections.abc import Mapping

HOMES: Mapping[str, str] = {
    "errors": (
        "BudgetExceededError ConflictError ContractError DeadlineExceededError DispatchError "
        "DuplicateBindingError EndlessRequestsError Failure FilesystemError JournalError LeaseLostError "
        "LedgerError NoEffect NotResumableError NotTextError ParseError PathRefusedError PatternError PromptError "
        "PromptEvaluationError PromptRenderError PromptValidationError ProviderError ReadOnlyError "
        "RecordError ReducerError ResourceCycleError ResourceError ResourceScopeError ResourcesClosedError "
        "RollbackError RunBusyError RunConflictError RunFormatError SandboxError "
        "SchemaError SessionBusyError SessionError SessionFormatError SnapshotError StaleCallError ToolError "
        "ToolValidationError UnboundResourceError VisibilityExpansionRequired WinkError WorldChangedError"
    ),
    "content": "Document Image",
    "dbc": "ensure invariant pure require",
    "budget": "Budget BudgetTracker TokenUsage",
    "deadlines": "Deadline",
    "results": "ToolRenderableResult ToolResult",
    "run_context": "Heartbeat RunContext",
    "serde": "dump dump_json error_text parse parser schema",
    "session": (
        "Append Clear DispatchResult Dispatcher Extend InProcessDispatcher OpaqueValue Reducer Replace Session "
        "SessionProtocol Slice SliceOp SlicePolicy Snapshot Vector append_all reducer replace_latest "
        "replace_latest_by upsert_by"
    ),
    "resources": (
        "Binding Closeable PostConstruct Provider Recordable Resolver ResourceContext ResourceRegistry Scope "
        "Snapshotable"
    ),
    "filesystem": (
        "FileChanges FileKind FileStat Filesystem GrepMatch HostFilesystem InMemoryFilesystem ReadOnlyFilesystem "
        "SubFilesystem"
    ),
    "prompt": (
        "CallsUndone Changes Decision FunctionTool IdempotencyConfig LocalPromptOverridesStore MarkdownSection "
        "Outcome Policy Prompt PromptDescriptor PromptExecuted PromptOverride PromptOverridesStore PromptProtocol "
        "PromptRendered PromptResources PromptTemplate ProviderAdapterProtocol QuotaPolicy RateLimitPolicy "
        "ReadBeforeWritePolicy RecordedError RenderedPrompt RenderedPromptProtocol Section SectionOverride "
        "SectionVisibility SequentialDependencyPolicy TextSection Tool ToolAnnotations ToolContext ToolExample "
        "ToolHandler ToolInvoked ToolOverride ToolPolicy ToolsSection set_visibility tool"
    ),
    "runtime": (
        "CompositeSnapshot EffectId EffectLedger JsonlLog Ledger LedgerEntry LoopProgress LoopResult MainLoop "
        "MainLoopConfig PendingToolTracker PostgresEffectLedger PostgresRunStore RecordedRun Retries RunOptions "
        "RunStore SqliteEffectLedger SqliteRunStore ToolCall "
        "ToolEffect ToolReply create_snapshot redact release_snapshot restore_snapshot tool_transaction transaction"
    ),
    "runtime.ledger": "Busy Claim Claimed Conflict EffectState Replay StoredResult UnknownOutcome",
    "runtime.record": (
        "FileStep HeldRun NewRows NewRun RunComparison RunDiff RunInfo RunRecord RunStatus Seal Step StepKind "
        "compare export_run"
    ),
    "adapters": (
        "Accepts Adapter AnswerMessage CallFinished CallMessage CallStarted EventStream Failed Finished History "
        "MessageReceived MessageUndone ModelMessage ModelRequest ModelTurn OpenCall ProgressEvent PromptResponse "
        "ReasoningDelta RequestFailed Resumed Retrying "
        "RunStarted SectionsOpened StopReason StreamEvent SyncEventStream TextDelta Throttle ToolExecutionContext "
        "ToolExecutor ToolSpec TurnAdapter TurnStarted UserMessage history_of sse subagent"
    ),
    "contrib.tools": (
        "AstevalConfig AstevalSection DigestConfig HostMount Plan PlanStep PlanningConfig PlanningStrategy "
        "PlanningToolsSection PodmanSandboxConfig PodmanSandboxSection PythonConfig PythonSection VfsConfig "
        "VfsToolsSection WorkspaceDigest WorkspaceDigestSection build_digest refresh_digest"
    ),
    "contrib.code": "EvalBackend EvalFiles EvalLimits EvalResult",
    "testing": (
        "Divergence EvalEscapes FakeClock FilesystemContract LedgerContract ReplayResult RunStoreContract "
        "ScriptedAdapter call call_raw execute_tool make_context make_context_with_files make_session make_vfs replay "
        "say transactional"
    ),
}
"""The names that each module of `weakincentives` is the home of. Those of `errors` are one tree, and counted apart."""

SINGLE_HOMES: Mapping[str, str] = {
    "adapters/anthropic.py": "AnthropicAdapter",
    "adapters/claude_agent_sdk/__init__.py": "ClaudeAgentSDKAdapter",
    "adapters/litellm.py": "LiteLLMAdapter",
    "adapters/local.py": "LocalAdapter",
    "adapters/openai.py": "OpenAIAdapter",
    "contrib/asteval/__init__.py": "AstevalBackend",
    "contrib/python/__init__.py": "MontyBackend",
}
"""Public classes that are imported from a module of their own, since it needs an extra."""

MOST_NAMES = 237
"""A ratchet: fewer is better. Lower it when names go."""

MOST_WITH_SEVERAL_PATHS = 79
"""A ratchet, likewise: names that more than one of these modules, or the root, exports."""
