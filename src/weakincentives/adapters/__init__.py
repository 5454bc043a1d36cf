"""Wire formats: what connects the engine to models.

Adapters of providers are in modules of their own (`weakincentives.adapters.openai`, ...), so that no SDK is imported
before it is needed.
"""

from ..errors import (
    BudgetExceededError,
    DeadlineExceededError,
    NotResumableError,
    PromptEvaluationError,
    PromptRenderError,
    PromptValidationError,
    RecordError,
    RollbackError,
    RunFormatError,
    SessionError,
    VisibilityExpansionRequired,
)
from ..loop.adapter import Adapter, TurnAdapter
from ..loop.adapter import ProviderAdapter as ProviderAdapter
from ..loop.attachments import Accepts
from ..loop.request import ModelRequest, ModelTurn, RequestFailed, StopReason, Throttle, ToolSpec
from ..loop.response import OpenCall, PromptResponse, history_of
from ..loop.server_events import sse
from ..loop.stream import EventStream, SyncEventStream
from ..loop.subagent import subagent
from ..runtime.executor import ToolExecutionContext, ToolExecutor
from ..runtime.messages import AnswerMessage, CallMessage, History, ModelMessage, UserMessage
from ..runtime.progress import (
    CallFinished,
    CallStarted,
    MessageReceived,
    ProgressEvent,
    ReasoningDelta,
    Resumed,
    Retrying,
    SectionsOpened,
    TextDelta,
    TurnStarted,
)
from ..runtime.response import Failed, Finished, MessageUndone, RunStarted, StreamEvent

__all__ = [
    "Accepts",
    "Adapter",
    "AnswerMessage",
    "BudgetExceededError",
    "CallFinished",
    "CallMessage",
    "CallStarted",
    "DeadlineExceededError",
    "EventStream",
    "Failed",
    "Finished",
    "History",
    "MessageReceived",
    "MessageUndone",
    "ModelMessage",
    "ModelRequest",
    "ModelTurn",
    "NotResumableError",
    "OpenCall",
    "ProgressEvent",
    "PromptEvaluationError",
    "PromptRenderError",
    "PromptResponse",
    "PromptValidationError",
    "ReasoningDelta",
    "RecordError",
    "RequestFailed",
    "Resumed",
    "Retrying",
    "RollbackError",
    "RunFormatError",
    "RunStarted",
    "SectionsOpened",
    "SessionError",
    "StopReason",
    "StreamEvent",
    "SyncEventStream",
    "TextDelta",
    "Throttle",
    "ToolExecutionContext",
    "ToolExecutor",
    "ToolSpec",
    "TurnAdapter",
    "TurnStarted",
    "UserMessage",
    "VisibilityExpansionRequired",
    "history_of",
    "sse",
    "subagent",
]
