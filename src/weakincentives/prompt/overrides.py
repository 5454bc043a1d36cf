"""Overrides: changing the text of a prompt without changing its code, and where such changes are stored."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import Any, Protocol, TypeVar, final, runtime_checkable

from ..errors import ParseError, PromptValidationError
from ..private_files import create_private, make_private_directory, sync_to_disk
from ..serde import dump_json, parse
from .placeholders import TemplateText
from .tool import Tool
from .tree import SectionTree

# What of a prompt can be overridden, with hashes of the words it has in the code.


@final
@dataclass(frozen=True, slots=True)
class SectionDescriptor:
    """A section that accepts overrides: its dotted path, its body as declared and the hash of it."""

    path: str
    body: str
    content_hash: str
    params_type: type[Any] | None = field(default=None, repr=False, compare=False)


@final
@dataclass(frozen=True, slots=True)
class ToolDescriptor:
    """A tool that accepts overrides: what it says of itself and its parameters, and the hash of its contract."""

    name: str
    description: str
    params: Mapping[str, str]
    content_hash: str
    tool: Tool[Any, Any] = field(repr=False, compare=False)


@final
@dataclass(frozen=True, slots=True)
class PromptDescriptor:
    """All of a prompt that can be overridden. Made from the code alone: no override shows in it."""

    ns: str
    key: str
    sections: Mapping[str, SectionDescriptor]
    tools: Mapping[str, ToolDescriptor]


def describe(ns: str, key: str, tree: SectionTree) -> PromptDescriptor:
    """The descriptor of a tree without overrides."""
    sections: dict[str, SectionDescriptor] = {}
    for node in tree.nodes:
        section, body = node.section, node.section.body
        if section.accepts_overrides and body is not None:
            digest = content_hash(body.source)
            sections[node.key] = SectionDescriptor(node.key, body.source, digest, section.params_type)
    tools = [_describe_tool(bound.tool) for bound in tree.tools.values() if bound.tool.accepts_overrides]
    return PromptDescriptor(ns, key, sections, {tool.name: tool for tool in tools})


def _describe_tool(tool: Tool[Any, Any]) -> ToolDescriptor:
    schema = tool.schema()
    params = {name: str(item.get("description", "")) for name, item in schema["properties"].items()}
    words = [tool.description] if tool.guidance is None else [tool.description, tool.guidance]
    contract = json.dumps([*words, schema], sort_keys=True)  # without guidance, as it was before there was any
    return ToolDescriptor(tool.name, tool.description, params, content_hash(contract), tool)


def content_hash(text: str) -> str:
    """What tells one text from another."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@final
@dataclass(frozen=True, slots=True)
class SectionOverride:
    """Another body for a section. `content_hash` is that of the body it was written for."""

    content_hash: str
    body: str


@final
@dataclass(frozen=True, slots=True)
class ToolOverride:
    """Other words for a tool; None, or a parameter left out, keeps the tool's own.

    `content_hash` is that of the contract it was written for.
    """

    content_hash: str
    description: str | None = None
    params: dict[str, str] = field(default_factory=dict[str, str])


@final
@dataclass(frozen=True, slots=True)
class PromptOverride:
    """One set of overrides of one prompt: section bodies by dotted path, tools by name."""

    ns: str
    key: str
    tag: str = "latest"
    sections: dict[str, SectionOverride] = field(default_factory=dict[str, SectionOverride])
    tools: dict[str, ToolOverride] = field(default_factory=dict[str, ToolOverride])


class Described(Protocol):
    """What can be seeded: a `Prompt`."""

    @property
    def descriptor(self) -> PromptDescriptor:
        """What of it can be overridden."""
        ...


@runtime_checkable
class PromptOverridesStore(Protocol):
    """Keeps overrides by namespace, key and tag.

    A name that is not usable, or data that is damaged, raises `PromptValidationError`. Calls may come from any thread.
    """

    def resolve(self, descriptor: PromptDescriptor, tag: str) -> PromptOverride | None:
        """The overrides of that tag that still fit the prompt; None when there are none.

        What was written for other words than the prompt has now is left out, with a warning in the log that says
        which; so is what the prompt does not have or does not allow to be overridden.
        """
        ...

    def upsert(self, descriptor: PromptDescriptor, override: PromptOverride) -> PromptOverride:
        """Store the overrides. When one does not fit the prompt, none is stored: `PromptValidationError`."""
        ...

    def seed(self, prompt: Described, *, tag: str = "latest") -> PromptOverride:
        """Store the prompt's own texts as overrides, to be edited; returns those that apply now.

        What was edited is never replaced, also when the prompt's own words changed since and it is not used any more:
        delete it to get the new text.
        """
        ...

    def delete(self, ns: str, key: str, tag: str = "latest") -> bool:
        """Forget the overrides of that tag; says whether there were any."""
        ...


# From stored overrides to a tree that uses their texts.


logger: logging.Logger = logging.getLogger(__name__)

_Descriptor = SectionDescriptor | ToolDescriptor
DescriptorT = TypeVar("DescriptorT", SectionDescriptor, ToolDescriptor)
OverrideT = TypeVar("OverrideT", SectionOverride, ToolOverride)


def usable(descriptor: PromptDescriptor, override: PromptOverride) -> PromptOverride:
    """The overrides that still fit the prompt; each of the others is left out with a warning."""
    return replace(
        override,
        sections=_fitting(override, "section", descriptor.sections, override.sections),
        tools=_fitting(override, "tool", descriptor.tools, override.tools),
    )


def _fitting(
    override: PromptOverride, kind: str, known: Mapping[str, _Descriptor], given: Mapping[str, OverrideT]
) -> dict[str, OverrideT]:
    fitting: dict[str, OverrideT] = {}
    for key, item in given.items():
        problem = _problem(known.get(key), item)
        if problem is None:
            fitting[key] = item
        else:
            logger.warning("Ignored the override of %s %r in %s/%s (tag %s): %s", kind, key, override.ns, override.key,
                           override.tag, problem)  # fmt: skip
    return fitting


def without_unedited(override: PromptOverride) -> PromptOverride:
    """The overrides without the sections that are still what seeding once wrote: their body has the hash beside it.

    Of a tool that cannot be told, since its hash is that of more than its words.
    """
    sections = {
        path: section
        for path, section in override.sections.items()
        if content_hash(section.body) != section.content_hash
    }
    return replace(override, sections=sections)


def check(descriptor: PromptDescriptor, override: PromptOverride) -> None:
    """`PromptValidationError` when any of the overrides does not fit the prompt: stale, unknown, or not renderable."""
    for path, section in override.sections.items():
        _body(_required(override, f"section {path!r}", descriptor.sections.get(path), section), section)
    for name, tool in override.tools.items():
        _with_texts(_required(override, f"tool {name!r}", descriptor.tools.get(name), tool).tool, tool)


def apply(tree: SectionTree, descriptor: PromptDescriptor, override: PromptOverride) -> SectionTree:
    """The tree with the overrides in it. `PromptValidationError` for a body whose placeholders do not exist.

    Words that are the same as the code's replace nothing.
    """
    override = usable(descriptor, override)
    bodies = {
        path: _body(descriptor.sections[path], section)
        for path, section in override.sections.items()
        if section.body.strip() != descriptor.sections[path].body
    }
    tools = {name: _with_texts(descriptor.tools[name].tool, tool) for name, tool in override.tools.items()}
    return tree.overridden(bodies, tools) if bodies or tools else tree


def _body(section: SectionDescriptor, override: SectionOverride) -> TemplateText:
    return TemplateText(override.body, section.params_type, path=section.path.split("."), what="override")


def _with_texts(tool: Tool[Any, Any], override: ToolOverride) -> Tool[Any, Any]:
    # An empty text is what seeding wrote for a parameter without a description.
    return tool.with_descriptions(override.description, {name: text for name, text in override.params.items() if text})


def _required(
    override: PromptOverride, what: str, known: DescriptorT | None, item: SectionOverride | ToolOverride
) -> DescriptorT:
    problem = _problem(known, item)
    if known is None or problem is not None:
        raise PromptValidationError(f"The override of {what} in {override.ns}/{override.key} cannot be kept: {problem}")
    return known


def _problem(known: _Descriptor | None, item: SectionOverride | ToolOverride) -> str | None:
    """Why an override does not fit what it is for; None when it does."""
    if known is None:
        return "the prompt has none, or it does not accept overrides. Take it out."
    if known.content_hash != item.content_hash:
        return "the prompt's own words changed since it was written. Take it out, seed again and redo the edit."
    return None


# Overrides as JSON files in a folder, made to be edited by hand and kept in version control.


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
        for what, name in [*(("ns", part) for part in parts), ("key", key), ("tag", tag)]:
            if not isinstance(name, str) or _NAME.fullmatch(name) is None:
                raise PromptValidationError(
                    f"The {what} {name!r} of an override is not usable as a file name. Use letters, digits, '_', "
                    "'-' and '.', at most 100, not beginning with a dot."
                )
        # '@' cannot stand in a name, so no folder of one prompt is the file of another.
        path = self._root.joinpath(*parts, f"{key}@{tag}.json")
        if not path.resolve().is_relative_to(self._root.resolve()):
            raise PromptValidationError(f"The override file {path} leads out of its folder through a symlink.")
        return path
