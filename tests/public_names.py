"""Each public name and its one documented home. Some can be imported from elsewhere too; the documentation uses these.

A new public name is added here. `tests/core/test_names.py` compares the table with what the packages export.
"""

from __future__ import annotations

from collections.abc import Mapping

HOMES: Mapping[str, str] = {
    "errors": (
        "BudgetExceededError ConflictError ContractError DeadlineExceededError DispatchError "
        "DuplicateBindingError EndlessRequestsError Failure FilesystemError JournalError LeaseLostError "
        "LedgerError NoEffect NotTextError ParseError PathRefusedError PatternError PromptError "
        "PromptEvaluationError PromptRenderError PromptValidationError ProviderError ReadOnlyError ReducerError "
        "ResourceCycleError ResourceError ResourceScopeError ResourcesClosedError RollbackError SandboxError "
        "SchemaError SessionBusyError SessionError SessionFormatError SnapshotError StaleCallError ToolError "
        "ToolValidationError UnboundResourceError VisibilityExpansionRequired WinkError"
    ),
    "dbc": ("ensure invariant problem_of pure require"),
    "budget": ("Budget BudgetTracker TokenUsage counted_in"),
    "deadlines": ("Deadline"),
    "results": ("ToolRenderableResult ToolResult render_value"),
    "run_context": ("Heartbeat RunContext"),
    "serde": ("MAX_INPUT_BYTES dump dump_json error_text has_secrets parse parser schema without_secrets"),
    "session": (
        "Append Clear DispatchResult Dispatcher EventHandler Extend InProcessDispatcher OpaqueValue Reducer "
        "Replace Session SessionProtocol Slice SliceChange SliceOp SlicePolicy Snapshot Vector append_all reducer "
        "replace_latest replace_latest_by upsert_by"
    ),
    "resources": (
        "Binding Closeable PostConstruct Provider Resolver ResourceContext ResourceRegistry Scope Snapshotable "
        "ToolScope"
    ),
    "filesystem": (
        "FileChanges FileKind FileStat Filesystem GrepMatch GuardedFilesystem HostFilesystem InMemoryFilesystem "
        "ReadOnlyFilesystem SubFilesystem"
    ),
    "prompt": (
        "BoundTool CallsUndone Changes Decision FunctionTool IdempotencyConfig LocalPromptOverridesStore "
        "MarkdownSection Outcome Prompt PromptDescriptor PromptExecuted PromptOverride PromptOverridesStore "
        "PromptProtocol PromptRendered PromptResources PromptTemplate ProviderAdapterProtocol QuotaPolicy "
        "RateLimitPolicy ReadBeforeWritePolicy RecordedError RenderedPrompt RenderedPromptProtocol ResultPolicy "
        "Section SectionOverride SectionVisibility SeenFiles SequentialDependencyPolicy SetVisibility SliceDelta "
        "StructuredOutput TextSection Tool ToolAnnotations ToolContext ToolExample ToolHandler ToolInvoked "
        "ToolOverride ToolPolicy ToolsSection VisibilityOverrides set_visibility tool"
    ),
    "prompt.overrides": ("Described SectionDescriptor ToolDescriptor check usable"),
    "runtime": (
        "CompositeSnapshot EffectId EffectLedger Ledger LedgerEntry LoopProgress LoopResponse LoopResult MainLoop "
        "MainLoopConfig PendingToolTracker PostgresEffectLedger Retries SqliteEffectLedger ToolCall ToolEffect "
        "ToolReply create_snapshot release_snapshot restore_snapshot tool_transaction transaction"
    ),
    "runtime.ledger": ("Busy Claim Claimed Conflict Doubt Replay State StoredResult"),
    "adapters": (
        "AnswerMessage CallFinished CallMessage CallStarted History ModelMessage ModelRequest ModelTurn OpenCall "
        "ProgressEvent PromptResponse ProviderAdapter RequestFailed Retrying SectionsOpened StopReason TextDelta "
        "Throttle ToolExecutionContext ToolExecutor ToolSpec TurnStarted UserMessage history_of"
    ),
    "contrib.tools": (
        "AddStep AstevalConfig AstevalSection DigestConfig DigestSource HostMount Improve Plan PlanStatus "
        "PlanStep PlanningConfig PlanningStrategy PlanningToolsSection PodmanSandboxConfig PodmanSandboxSection "
        "PythonConfig PythonSection ReadPlan SetupPlan StepStatus UpdateStep VfsConfig VfsToolsSection "
        "WorkspaceDigest WorkspaceDigestSection build_digest refresh_digest"
    ),
    "contrib.code": ("CodeFiles EvalBackend EvalFiles EvalLimits EvalResult"),
    "testing": (
        "ESCAPES ESCAPING_CODE EvalEscapes FakeClock FilesystemContract LedgerContract MadeContext "
        "ScriptedAdapter Turn call call_raw execute_tool make_context make_context_with_files make_session "
        "make_vfs say transactional"
    ),
    "masking": ("MASK MAX_LEAVING_CHARS leaving redact visible visible_line writable"),
}
"""The names that each module of `weakincentives` is the home of."""

MOST_NAMES = 271
"""A ratchet: fewer is better. Lower it when names go."""

MOST_WITH_SEVERAL_PATHS = 76
"""A ratchet, likewise: names that more than one of these modules, or the root, exports."""
