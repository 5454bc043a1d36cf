"""Ask a model, run its calls, answer requests: the abstract adapter, the evaluation, `MainLoop` and batches."""

from .adapter import ProviderAdapter
from .main_loop import LoopResponse, MainLoop, MainLoopConfig
from .response import OpenCall, PromptResponse
from .result import LoopProgress, LoopResult, Retries

__all__ = [
    "LoopProgress",
    "LoopResponse",
    "LoopResult",
    "MainLoop",
    "MainLoopConfig",
    "OpenCall",
    "PromptResponse",
    "ProviderAdapter",
    "Retries",
]
