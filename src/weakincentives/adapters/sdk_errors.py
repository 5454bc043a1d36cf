"""What the providers' packages have in common: how they are loaded, and what their exceptions mean."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from time import time
from typing import Any, NamedTuple, cast

from ..loop.request import FailureKind, RequestFailed, sensible_wait

_MAX_CHARS = 4000
_MAX_CAUSES = 20


class ProviderWords(NamedTuple):
    """How messages speak of a provider: who it is, where its key comes from, what its adapter is called."""

    provider: str
    key_variable: str
    adapter: str
    model: str


def load(module: str, extra: str, *, before: tuple[int, int] | None = None) -> Any:
    """Import a provider's package when it is first needed; ImportError names the command that installs it.

    `before` is the first Python for which there is no release of the package: from there on the extra brings openai.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        command = f"pip install 'weakincentives[{extra}]'"
        advice = f"Install it: {command}"
        if before is not None and sys.version_info >= before:
            advice = (
                f"There is no release of it for this Python; {command} installs openai instead: use "
                "OpenAIAdapter(model, base_url=...) with a server that is compatible with OpenAI's, which most "
                f"providers have, or a Python before {before[0]}.{before[1]}"
            )
        raise ImportError(f"{module} could not be imported ({error}). {advice}") from error


def broken_limit(error: BaseException) -> RequestFailed | None:
    """The limit of ours that an SDK's exception came from: SDKs wrap what their client raises, some of them twice."""
    seen: BaseException | None = error
    for _ in range(_MAX_CAUSES):
        if seen is None or isinstance(seen, RequestFailed):
            return seen
        seen = seen.__cause__ or seen.__context__
    return None


def failure_of(error: Exception, words: ProviderWords) -> RequestFailed | None:
    """What an exception of an SDK means; None when it is none of an SDK's, so that it passes as it is.

    The SDKs of OpenAI and Anthropic are made alike and LiteLLM's exceptions derive from OpenAI's, so names and
    attributes tell enough, whichever versions are installed.
    """
    names = {cls.__name__ for cls in type(error).__mro__}
    roots = {cls.__module__.partition(".")[0] for cls in type(error).__mro__}
    if roots & {"httpx", "httpx2", "httpcore", "httpcore2"}:  # raised while a stream is read
        return _transport("timeout" if any("Timeout" in name for name in names) else "connection", error, words)
    if not roots & {"openai", "anthropic", "litellm"}:
        return None
    if names & {"APITimeoutError", "Timeout"}:
        return _transport("timeout", error, words)
    if "APIConnectionError" in names and not isinstance(getattr(error, "status_code", None), int):
        return _transport("connection", error, words)
    kind = _kind(error, names)
    return RequestFailed(kind, _message(kind, error, words), retry_after=retry_after(error))


def _transport(kind: FailureKind, error: Exception, words: ProviderWords) -> RequestFailed:
    what = "did not answer in time" if kind == "timeout" else "cannot be reached, or dropped the connection"
    return RequestFailed(kind, f"{words.provider} {what}: {_cut(error.__cause__ or error) or type(error).__name__}")


def _kind(error: Exception, names: set[str]) -> FailureKind:
    status = getattr(error, "status_code", None)
    text = f"{_types(error)} {_cut(error)}".lower()
    if re.search(r"insufficient_quota|billing|credit balance", text):
        return "refused"  # a 429 that waiting does not mend
    if "overloaded" in text or status == 529:
        return "overloaded"
    if status == 429 or "rate_limit" in text:
        return "throttled"
    if status in {401, 403} or "authentication_error" in text:
        return "key"
    if "ContextWindowExceededError" in names or status == 413 or _CONTEXT.search(text):
        return "context"
    if status == 404 or "model_not_found" in text:
        return "model"
    if status in {408, 409}:
        return "timeout"
    if (isinstance(status, int) and status >= 500) or "server_error" in text:
        return "server"
    if "APIResponseValidationError" in names:
        return "malformed"
    return "refused"


def is_missing_key(error: Exception) -> bool:
    """Whether a client could not be made, or would not send, for want of a key."""
    return getattr(error, "status_code", None) is None and _KEY.search(_cut(error).lower()) is not None


def missing_key(error: Exception, words: ProviderWords) -> RequestFailed:
    """What to do about it."""
    return RequestFailed("key", _message("key", error, words))


_KEY = re.compile(r"api[_ ]key.*(must be set|option)|could not resolve authentication|missing.*credentials")
_CONTEXT = re.compile(
    r"context_length_exceeded|context (length|window|size)|prompt is too long|request_too_large|too many tokens"
)


def _message(kind: FailureKind, error: Exception, words: ProviderWords) -> str:
    text = said(error)
    if kind == "key":
        return (
            f"{words.provider} got no valid key: {text} Set {words.key_variable}, or pass {words.adapter}(api_key=...)."
        )
    if kind == "model":
        return (
            f"{words.provider} does not know the model {words.model!r}: {text} "
            f"Pass the name of one that it serves to {words.adapter}(...), and look at base_url= if you gave one."
        )
    if kind == "context":
        return (
            f"the conversation is too long for {words.model!r}: {text} "
            "Shorten the prompt or the history=, or lower max_result_chars= of the tools."
        )
    return f"{words.provider}: {text}"


def said(error: Exception) -> str:
    """The provider's own words, from the body where there is one."""
    body = _body(error)
    text = body.get("message")
    return text[:_MAX_CHARS] if isinstance(text, str) and text else _cut(error) or type(error).__name__


def _cut(error: BaseException) -> str:
    """An exception's text, no longer than is of use: servers write it, and patterns are searched in it."""
    return str(error)[:_MAX_CHARS]


def _types(error: Exception) -> str:
    body = _body(error)
    return " ".join(str(body.get(key))[:_MAX_CHARS] for key in ("type", "code") if body.get(key))


def _body(error: Exception) -> Mapping[str, Any]:
    """`{"message", "type", "code"}`, also where the SDK leaves it wrapped in `{"error": ...}`."""
    body = getattr(error, "body", None)
    if not isinstance(body, Mapping):
        return {}
    inner = cast(Mapping[str, Any], body).get("error")
    return cast(Mapping[str, Any], inner if isinstance(inner, Mapping) else body)


def retry_after(error: Exception) -> float | None:
    """Seconds the provider asked to wait, from `retry-after-ms` or `retry-after` (seconds or a date).

    None where it says nothing that can be meant: no number, not a finite one, more than a day.
    """
    headers: Any = getattr(getattr(error, "response", None), "headers", None)
    if headers is None:
        return None
    for name, read in (("retry-after-ms", _milliseconds), ("retry-after", _seconds)):
        with suppress(TypeError, ValueError, OverflowError):  # it is missing, or nothing that can be read
            found = sensible_wait(read(headers.get(name)))
            if found is not None:
                return found
    return None


def _milliseconds(text: str) -> float:
    return float(text) / 1000


def _seconds(text: str) -> float:
    if re.fullmatch(r"\s*[0-9.]+\s*", text):
        return float(text)
    return parsedate_to_datetime(text).timestamp() - time()
