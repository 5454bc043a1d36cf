"""Ask a model, run its calls, answer requests: the abstract adapter, the evaluation, `MainLoop` and batches."""

from ..deprecation import FormerNames, former_names
from .adapter import Adapter, ProviderAdapter, TurnAdapter
from .main_loop import MainLoop, MainLoopConfig
from .response import OpenCall, PromptResponse
from .result import LoopProgress, LoopResult, Retries

__getattr__: FormerNames = former_names(__name__, {"LoopResponse": "adapters:PromptResponse"})

__all__ = [
    "Adapter",
    "LoopProgress",
    "LoopResult",
    "MainLoop",
    "MainLoopConfig",
    "OpenCall",
    "PromptResponse",
    "ProviderAdapter",
    "Retries",
    "TurnAdapter",
]
