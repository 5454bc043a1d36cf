"""WINK's own classes in saved sessions: its events, the state of its sections, what its tools take and give.

They are known by name, so that `Session.from_json` needs to be told only of the classes of the application. The list is
written down: a saved text may be anybody's, and must not make us import or build anything else.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ..errors import SessionFormatError

_PACKAGE = "weakincentives."
_CLASSES = {
    "budget": "TokenUsage",
    "contrib.evaluation.protocol": "EvalResult",
    "contrib.evaluation.tool": "EvaluatePythonParams PythonResult",
    "contrib.files.reading": (
        "ReadFileParams FileContent ListDirectoryParams Entry Listing GlobFilesParams SearchFilesParams FoundFiles "
        "GrepFilesParams FoundLine FoundLines"
    ),
    "contrib.files.writing": (
        "WriteFileParams EditFileParams FileWritten TransferParams DeleteFileParams FileTransferred FileDeleted"
    ),
    "contrib.podman.shell": "ShellExecuteParams ShellResult",
    "contrib.tools.digest.digest": "WorkspaceDigest",
    "contrib.tools.planning.changes": "SetupPlan AddStep UpdateStep ReadPlan",
    "contrib.tools.planning.plan": "Plan PlanStep",
    "filesystem.protocol": "FileChanges FileStat GrepMatch",
    "prompt.changes": "Changes SliceDelta",
    "prompt.disclosure": "OpenSections ReadSection",
    "prompt.events": "ToolInvoked CallsUndone PromptRendered PromptExecuted",
    "prompt.read_before_write": "SeenFiles",
    "prompt.visibility": "SectionVisibility SetVisibility VisibilityOverrides",
    "results": "ToolResult",
    "run_context": "RunContext",
    "runtime.cuts": "ReadToolResult ResultPart",
}


def own_type(name: str) -> type[Any] | None:
    """The class of WINK with that name in saved text, imported if need be; None when it is none of those.

    `SessionFormatError` when it needs an extra that is not installed.
    """
    module, _, class_name = name.partition(":")
    if class_name not in _CLASSES.get(module.removeprefix(_PACKAGE), "").split() or not module.startswith(_PACKAGE):
        return None
    try:
        return getattr(import_module(module), class_name)
    except ImportError as error:
        raise SessionFormatError(f"The saved session holds {name}, which cannot be imported here: {error}.") from error


__all__ = ["own_type"]
