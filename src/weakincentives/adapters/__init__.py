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
    RecordError,
    RollbackError,
    RunFormatError,
    SessionError,
    VisibilityExpansionRequired,
)
from ..loop.adapter import Adapter, TurnAdapter
from ..loop.adapter import ProviderAdapter as ProviderAdapter
from ..loop.request import ModelRequest, ModelTurn, RequestFailed, StopReason, Throttle, ToolSpec
from ..loop.response import OpenCall, PromptResponse, history_of
from ..runtime.executor import ToolExecutionContext, ToolExecutor
from ..runtime.messages import AnswerMessage, CallMessage, History, ModelMessage, UserMessage
from ..runtime.progress import (
    CallFinished,
    CallStarted,
    ProgressEvent,
    Retrying,
    SectionsOpened,
    TextDelta,
    TurnStarted,
)

__all__ = [
    "Adapter",
    "AnswerMessage",
    "BudgetExceededError",
    "CallFinished",
    "CallMessage",
    "CallStarted",
    "DeadlineExceededError",
    "History",
    "ModelMessage",
    "ModelRequest",
    "ModelTurn",
    "NotResumableError",
    "OpenCall",
    "ProgressEvent",
    "PromptEvaluationError",
    "PromptRenderError",
    "PromptResponse",
    "RecordError",
    "RequestFailed",
    "Retrying",
    "RollbackError",
    "RunFormatError",
    "SectionsOpened",
    "SessionError",
    "StopReason",
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
]
