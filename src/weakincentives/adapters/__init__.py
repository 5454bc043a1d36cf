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
from .core import ProviderAdapter
from .exchange import ModelRequest, ModelTurn, StopReason
from .failures import RequestFailed
from .kept_history import history_of
from .progress import (
    CallFinished,
    CallStarted,
    ProgressEvent,
    Retrying,
    SectionsOpened,
    TextDelta,
    TurnStarted,
)
from .response import OpenCall, PromptResponse
from .throttle import Throttle
from .tool_execution_context import ToolExecutionContext
from .tool_executor import ToolExecutor
from .tool_spec import ToolSpec
from .transcript import AnswerMessage, CallMessage, History, ModelMessage, UserMessage

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
