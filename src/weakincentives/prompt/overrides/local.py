"""Overrides as JSON files in a folder, made to be edited by hand and kept in version control."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from typing import final

from ...errors import ParseError, PromptValidationError
from ...private_files import create_private, make_private_directory, sync_to_disk
from ...serde import dump_json, parse
from .apply import check, usable, without_unedited
from .store import Described, PromptDescriptor, PromptOverride, SectionOverride, ToolOverride

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")


@final
class LocalPromptOverridesStore:
    """One file for each prompt and tag: `root/<ns>/<key>@<tag>.json`.

    Files are replaced as a whole, so a reader sees the old or the new one and a crash leaves one of them. The
    folder is made when something is first written, for its owner alone, and so are the files; what is there keeps
    its mode. Names that could lead out of it are refused, and so is a symlink that does.
    """

    __slots__ = ("_root",)

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = Path(root)

    def resolve(self, descriptor: PromptDescriptor, tag: str) -> PromptOverride | None:
        """See `PromptOverridesStore.resolve`."""
        found = self._load(descriptor.ns, descriptor.key, tag)
        return None if found is None else usable(descriptor, found)

    def upsert(self, descriptor: PromptDescriptor, override: PromptOverride) -> PromptOverride:
        """See `PromptOverridesStore.upsert`."""
        if (override.ns, override.key) != (descriptor.ns, descriptor.key):
            raise PromptValidationError(
                f"The override is for {override.ns}/{override.key}, the prompt is {descriptor.ns}/{descriptor.key}."
            )
        check(descriptor, override)
        self._save(override)
        return override

    def seed(self, prompt: Described, *, tag: str = "latest") -> PromptOverride:
        """See `PromptOverridesStore.seed`."""
        descriptor = prompt.descriptor
        found = self._load(descriptor.ns, descriptor.key, tag)
        kept = PromptOverride(descriptor.ns, descriptor.key, tag) if found is None else without_unedited(found)
        sections = {
            path: SectionOverride(section.content_hash, section.body) for path, section in descriptor.sections.items()
        }
        tools = {
            name: ToolOverride(tool.content_hash, tool.description, dict(tool.params))
            for name, tool in descriptor.tools.items()
        }
        seeded = replace(kept, sections={**sections, **kept.sections}, tools={**tools, **kept.tools})
        if seeded != found:  # else a file that was edited by hand keeps its form, too
            self._save(seeded)
        return usable(descriptor, seeded)

    def delete(self, ns: str, key: str, tag: str = "latest") -> bool:
        """See `PromptOverridesStore.delete`."""
        try:
            self._path(ns, key, tag).unlink()
        except FileNotFoundError:
            return False
        return True

    def _load(self, ns: str, key: str, tag: str) -> PromptOverride | None:
        path = self._path(ns, key, tag)
        try:
            text = path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            found = parse(PromptOverride, text)
        except ParseError as error:
            raise PromptValidationError(
                f"The override file {path} is damaged: {error}. Correct it, or delete it and seed it again."
            ) from error
        if (found.ns, found.key, found.tag) != (ns, key, tag):
            raise PromptValidationError(
                f"The override file {path} says it is for {found.ns}/{found.key} (tag {found.tag}). "
                "Correct its ns, key and tag, or move it."
            )
        return found

    def _save(self, override: PromptOverride) -> None:
        path = self._path(override.ns, override.key, override.tag)
        make_private_directory(path.parent)
        temporary = path.with_name(f".{path.name}.{token_hex(8)}")
        try:
            with create_private(temporary) as file:
                if path.exists():
                    os.fchmod(file.fileno(), path.stat().st_mode & 0o777)
                file.write(f"{dump_json(override, indent=2)}\n".encode())
                file.flush()
                sync_to_disk(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    def _path(self, ns: str, key: str, tag: str) -> Path:
        parts = ns.split("/") if isinstance(ns, str) else [ns]
        for field, name in [*(("ns", part) for part in parts), ("key", key), ("tag", tag)]:
            if not isinstance(name, str) or _NAME.fullmatch(name) is None:
                raise PromptValidationError(
                    f"The {field} {name!r} of an override is not usable as a file name. Use letters, digits, '_', "
                    "'-' and '.', at most 100, not beginning with a dot."
                )
        # '@' cannot stand in a name, so no folder of one prompt is the file of another.
        path = self._root.joinpath(*parts, f"{key}@{tag}.json")
        if not path.resolve().is_relative_to(self._root.resolve()):
            raise PromptValidationError(f"The override file {path} leads out of its folder through a symlink.")
        return path


__all__ = ["LocalPromptOverridesStore"]
