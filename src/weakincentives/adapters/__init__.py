"""Wire formats: what connects the engine to models.

Adapters of providers are in modules of their own (`weakincentives.adapters.openai`, ...), so that no SDK is imported
before it is needed.
"""

from ..errors import (
    BudgetExceededError,
    DeadlineExceededError,
    PromptEvaluationError,
    PromptRenderError,
    RollbackError,
    SessionError,
    VisibilityExpansionRequired,
)
from ..loop.adapter import ProviderAdapter
from ..loop.history import history_of
from ..loop.request import ModelRequest, ModelTurn, StopReason, ToolSpec
from ..loop.response import OpenCall, PromptResponse
from ..loop.throttle import RequestFailed, Throttle
from ..runtime.execution_context import ToolExecutionContext
from ..runtime.executor import ToolExecutor
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
    "OpenCall",
    "ProgressEvent",
    "PromptEvaluationError",
    "PromptRenderError",
    "PromptResponse",
    "ProviderAdapter",
    "RequestFailed",
    "Retrying",
    "RollbackError",
    "SectionsOpened",
    "SessionError",
    "StopReason",
    "TextDelta",
    "Throttle",
    "ToolExecutionContext",
    "ToolExecutor",
    "ToolSpec",
    "TurnStarted",
    "UserMessage",
    "VisibilityExpansionRequired",
    "history_of",
]
