"""The digest as the session keeps it, and how large it may be."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ...errors import PromptValidationError

DEFAULT_NAME = "workspace-digest"


@dataclass(slots=True, frozen=True)
class WorkspaceDigest:
    """What is known of a workspace; `session[WorkspaceDigest].latest()`.

    Attributes:
        summary: one or two sentences.
        body: the digest itself, as markdown.
        fingerprint: changes when a file that counts is added, removed or changed, and with the limits.
        files, size: how many files were seen, and their bytes.
        improved: whether the body is a model's version of what was found.
        name: which workspace, where a session knows several: the key of the section that shows it.
    """

    summary: str
    body: str
    fingerprint: str
    files: int = 0
    size: int = 0
    improved: bool = False
    name: str = DEFAULT_NAME

    def render(self) -> str:
        """The digest as the model reads it."""
        return self.body


@dataclass(slots=True, frozen=True)
class DigestConfig:
    """How far to look and how much to say. `PromptValidationError` for what makes no sense.

    Attributes:
        max_chars: length of the body; what does not fit is cut at a line, and a line says so. 200 or more.
        max_files: files to look at; beyond it the digest says that it is not complete.
        max_entries: lines of each list in the body.
        max_depth: levels of directories in the layout.
        large_file: bytes from which a file is listed as large.
    """

    max_chars: int = 6000
    max_files: int = 100_000
    max_entries: int = 20
    max_depth: int = 3
    large_file: int = 1_000_000

    def __post_init__(self) -> None:
        for item in fields(self):
            value, least = getattr(self, item.name), 200 if item.name == "max_chars" else 1
            if type(value) is not int or value < least:
                raise PromptValidationError(
                    f"DigestConfig {item.name} must be a number of {least} or more, got {value!r}."
                )
