"""What of the images and documents in a conversation is sent to a model, and what stands for the rest."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ..content import TEXT_TYPES, Content, Document, contents_in, size_text, with_parts_as_text
from ..prompt.placeholders import as_block
from ..results import ToolResult
from ..runtime.messages import AnswerMessage, Message, Messages, UserMessage
from .request import ModelRequest, RequestFailed

IMAGE_TYPES: frozenset[str] = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
PDF_TYPE = "application/pdf"

_MB = 1024 * 1024
_MAX_TEXT_BYTES = _MB
"""A longer text is not sent: it would fill the whole context of most models."""
_MAX_RESULT_BYTES = 32 * 1024
"""The same for text in the result of a tool, where a text is cut and can be read on."""


class Accepts(NamedTuple):
    """What a model takes besides text. Documents that are text are sent to every model.

    Attributes:
        media_types: which types are sent; of others the model reads one line.
        max_image: how many bytes an image may have, before it is encoded.
        max_document: how many a document may have.
        max_total: how many bytes all of one request may have together.
        max_count: how many there may be in one request.
    """

    media_types: frozenset[str] = frozenset()
    max_image: int = 20 * _MB
    max_document: int = 32 * _MB
    max_total: int = 32 * _MB
    max_count: int = 100

    def with_types(self, media_types: Collection[str] | None) -> Accepts:
        """The same with other media types; None leaves them as they are."""
        if media_types is None:
            return self
        if isinstance(media_types, str) or not all(isinstance(kind, str) and "/" in kind for kind in media_types):
            raise ValueError(f"media_types= takes types such as ['image/png'], or () for none, got {media_types!r}.")
        return self._replace(media_types=frozenset(media_types))


TEXT_ONLY = Accepts()
"""A model that reads text and nothing else."""


def user_message(message: str | Content | Sequence[str | Content]) -> UserMessage:
    r"""A message of a user: a text, an image or a document, or several of these in order.

    `TypeError` for anything else.

    >>> from weakincentives.content import Document
    >>> user_message(["What is this?", Document(b"%PDF-1.7", name="bill.pdf")]).text
    'What is this?\n[document bill.pdf, application/pdf, 8 bytes]'
    """
    return UserMessage(message) if isinstance(message, str) else UserMessage(*with_parts_as_text(message))


def shown_of(result: ToolResult[Any]) -> tuple[Content, ...]:
    """The images and documents in a result that the model is to see."""
    return () if result.exclude_value_from_context else contents_in(result.value)


def attached(messages: Sequence[Message]) -> tuple[Content, ...]:
    """All images and documents in a conversation, in order."""
    return tuple(
        content
        for message in messages
        if isinstance(message, UserMessage | AnswerMessage) and message.attachments
        for content in message.attachments
    )


def fitted(request: ModelRequest, accepts: Accepts) -> ModelRequest:
    """The request with no more attached than the model takes; the rest is text.

    `RequestFailed` when what is too large is in the prompt, or in the newest message of a user: it was the program
    that put it there. Elsewhere, and of a type that is not taken, it is a line. When all together are too large, the
    oldest become lines first.
    """
    said = request.messages
    if not (said.shows if isinstance(said, Messages) else attached(said)):
        return request
    messages: list[Message] = list(said)
    users = [at for at, message in enumerate(messages) if isinstance(message, UserMessage)]
    needed = [*dict.fromkeys((users[0], users[-1]))] if users else []
    rest = [at for at in range(len(messages) - 1, -1, -1) if at not in needed]
    left = _Left(accepts)
    for at in (*needed, *rest):
        message = messages[at]
        if isinstance(message, UserMessage | AnswerMessage) and message.attachments:
            messages[at] = _fit(message, left, required=at in needed)
    return request._replace(messages=messages)


def check_message(message: UserMessage, accepts: Accepts) -> None:
    """`RequestFailed` when something in a message is too large to be sent."""
    if message.attachments:
        _fit(message, _Left(accepts), required=True)


def fitted_answer(answer: AnswerMessage, accepts: Accepts) -> AnswerMessage:
    """One answer with no more attached than the model takes."""
    made = _fit(answer, _Left(accepts), required=False) if answer.attachments else answer
    assert isinstance(made, AnswerMessage)
    return made


class _Left:
    """What may still be sent with one request."""

    def __init__(self, accepts: Accepts) -> None:
        self.accepts = accepts
        self._bytes = accepts.max_total
        self._count = accepts.max_count

    def problem(self, content: Content) -> str | None:
        """Why it cannot be sent; None for one that is counted as sent."""
        size, accepts = len(content.data), self.accepts
        most = accepts.max_document if isinstance(content, Document) else accepts.max_image
        if size > most:
            return f"at most {size_text(most)} may be sent, and it is larger"
        if size > self._bytes or not self._count:
            return f"at most {accepts.max_count} of {size_text(accepts.max_total)} together fit one request"
        self._bytes -= size
        self._count -= 1
        return None


def _fit(message: UserMessage | AnswerMessage, left: _Left, *, required: bool) -> Message:
    sent: list[Content] = []
    texts = [message.text] if message.text else []
    for content in message.attachments:
        if isinstance(content, Document) and content.media_type in TEXT_TYPES:
            most = _MAX_TEXT_BYTES if isinstance(message, UserMessage) else _MAX_RESULT_BYTES
            if len(content.data) <= most:
                texts.append(f"{content.describe()}:\n{as_block(content.data.decode())}")
                continue
            problem = f"at most {size_text(most)} of a text file may be sent, and it is longer"
        elif content.media_type not in left.accepts.media_types:
            texts.append(f"{content.describe()} is not shown: this model is not sent {content.media_type}.")
            continue
        else:
            problem = left.problem(content)
        if problem is None:
            sent.append(content)
        elif required:
            raise RequestFailed("refused", f"{content.describe()} cannot be sent: {problem}. Scale it down or split it")
        else:
            texts.append(f"{content.describe()} is not shown: {problem}.")
    return replace(message, text="\n\n".join(texts), attachments=tuple(sent))


__all__ = [
    "IMAGE_TYPES",
    "PDF_TYPE",
    "TEXT_ONLY",
    "Accepts",
    "attached",
    "check_message",
    "fitted",
    "fitted_answer",
    "shown_of",
    "user_message",
]
