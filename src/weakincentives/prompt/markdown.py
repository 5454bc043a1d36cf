"""Sections written as markdown templates."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Unpack

from .placeholders import Body
from .section import Section, SectionOptions
from .tool import Tool
from .type_forms import ParamsT


class MarkdownSection(Section[ParamsT]):
    r"""A section whose text is a template: dedented, stripped, `${name}` placeholders filled from its params.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Guidance:
    ...     audience: str
    >>> section = MarkdownSection[Guidance](title="Tone", template="Write for ${audience}; it costs $5.")
    >>> section.key, section.render_body(Guidance("children"))
    ('tone', 'Write for children; it costs $5.')
    """

    _text_name: ClassVar[str] = "template"

    def __init__(
        self,
        *,
        title: str,
        template: str = "",
        tools: Iterable[Tool[Any, Any]] = (),
        **options: Unpack[SectionOptions[ParamsT]],
    ) -> None:
        super().__init__(title=title, tools=tools, **options)
        self.body = Body(template, self.params_type, path=(self.key,), what=self._text_name)

    @property
    def template(self) -> str:
        """The text as it was declared, dedented and stripped."""
        assert self.body is not None
        return self.body.source


class TextSection(MarkdownSection[ParamsT]):
    """`MarkdownSection` by its older name: the template is called `body`."""

    _text_name = "body"

    def __init__(
        self,
        title: str,
        body: str = "",
        *,
        tools: Iterable[Tool[Any, Any]] = (),
        **options: Unpack[SectionOptions[ParamsT]],
    ) -> None:
        super().__init__(title=title, template=body, tools=tools, **options)


class ToolsSection(MarkdownSection[ParamsT]):
    """Tools with a heading and an optional description. It never lists its tools: adapters tell the model of them."""

    _text_name = "description"

    def __init__(
        self,
        *,
        title: str,
        tools: Iterable[Tool[Any, Any]],
        description: str = "",
        **options: Unpack[SectionOptions[ParamsT]],
    ) -> None:
        super().__init__(title=title, template=description, tools=tools, **options)


__all__ = ["MarkdownSection", "TextSection", "ToolsSection"]
