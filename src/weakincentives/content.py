"""Images and files as content: what a prompt, a message or a tool's result shows the model besides text."""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextvars import ContextVar
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self, cast, final
from weakref import ref

MAX_CONTENT_BYTES = 32 * 1024 * 1024
"""The largest image or document. What a provider takes is less, mostly; its adapter knows."""

KINDS_MADE: set[str] = set()
"""What of the two this process has ever made. Where that is nothing, no value need be looked through for them."""

_MAX_NAME_CHARS = 80
_MAX_DEPTH = 20
_IMAGES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp"}
_TEXTS = {
    ".txt": "text/plain",
    ".log": "text/plain",
    ".md": "text/markdown",
    ".csv": "text/csv",
    ".html": "text/html",
    ".xml": "text/xml",
    ".json": "application/json",
}
TEXT_TYPES: frozenset[str] = frozenset(_TEXTS.values())
"""Documents of these types are UTF-8 text, and are sent as text to any model."""
_OTHER_FORMS = {
    b"<svg": "an SVG, which may hold scripts and which no provider takes; convert it to PNG",
    b"II*\0": "a TIFF; convert it to PNG",
    b"MM\0*": "a TIFF; convert it to PNG",
    b"BM": "a BMP; convert it to PNG",
    b"PK\x03\x04": "a ZIP archive or an office file; convert it to PDF",
    b"<": "HTML or XML",
}
_UNFIT = re.compile(r"[^\w .,+@()-]")
"""What a name may not hold where the model reads it: line ends, brackets, characters that turn the reading order."""


@final
@dataclass(frozen=True, slots=True, repr=False)
class Image:
    r"""A picture for the model: PNG, JPEG, GIF or WebP.

    It never changes. Where only text goes, in a log or to a model that takes no images, it is one line: `str(image)`.

    Attributes:
        data: the bytes of the file, at most 32 MB.
        media_type: what the bytes are; read from them when it is left out.
        name: a file name for the reader, or None. Where the model reads it, unusual characters are replaced.

    Raises `ValueError` for empty, too large and unknown data, and for a media type that contradicts it; `TypeError`
    for data that is not `bytes`.

    >>> Image(b"\x89PNG\r\n\x1a\n" + bytes(2040), name="chart.png")
    Image('chart.png', image/png, 2 KB)
    >>> print(Image(b"\xff\xd8\xff" + bytes(500)))
    [image, image/jpeg, 503 bytes]
    """

    data: bytes
    media_type: str = ""
    name: str | None = None

    _kind: ClassVar[str] = "image"

    def __post_init__(self) -> None:
        _check(self)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file. `OSError` when it cannot be read; `ValueError` as for the bytes in it."""
        return _from_file(cls, Path(path))

    def describe(self) -> str:
        """The one line of text that stands for it: `[image chart.png, image/png, 2 KB]`."""
        return _described(self)

    def render(self) -> str:
        """As `describe`: what stands in the text of a result."""
        return _described(self)

    def __str__(self) -> str:
        return _described(self)

    def __repr__(self) -> str:
        return _shown(self)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[type[Image], tuple[bytes, str, str | None]]:
        return Image, (self.data, self.media_type, self.name)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        return _core_schema(cls)


@final
@dataclass(frozen=True, slots=True, repr=False)
class Document:
    r"""A file for the model: a PDF, or text (plain, Markdown, CSV, HTML, XML, JSON).

    It never changes. Text goes to every model; a PDF to those that take one, and is one line of text elsewhere.

    Attributes:
        data: the bytes of the file, at most 32 MB; of a text, UTF-8.
        media_type: what the bytes are; without it they must be a PDF.
        name: a file name for the reader, or None. Where the model reads it, unusual characters are replaced.

    Raises what `Image` does.

    >>> Document(b"%PDF-1.7 ...", name="invoice.pdf")
    Document('invoice.pdf', application/pdf, 12 bytes)
    >>> print(Document(b"a,b", "text/csv"))
    [document, text/csv, 3 bytes]
    """

    data: bytes
    media_type: str = "application/pdf"
    name: str | None = None

    _kind: ClassVar[str] = "document"

    def __post_init__(self) -> None:
        _check(self)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file; what kind of text it is says its suffix. Raises what `Image.from_file` does."""
        return _from_file(cls, Path(path))

    @property
    def text(self) -> str | None:
        """What is in it, of a text; None of a PDF."""
        return self.data.decode() if self.media_type in TEXT_TYPES else None

    def describe(self) -> str:
        """The one line of text that stands for it: `[document invoice.pdf, application/pdf, 2 KB]`."""
        return _described(self)

    def render(self) -> str:
        """As `describe`: what stands in the text of a result."""
        return _described(self)

    def __str__(self) -> str:
        return _described(self)

    def __repr__(self) -> str:
        return _shown(self)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[type[Document], tuple[bytes, str, str | None]]:
        return Document, (self.data, self.media_type, self.name)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        return _core_schema(cls)


Content = Image | Document
"""What a message may carry besides its text."""


# Checks.


def _check(content: Any) -> None:
    kind, data, name = type(content).__name__, content.data, content.name
    if type(data) is not bytes:
        raise TypeError(f"{kind}(data) takes bytes, got {type(data).__name__}. {_fix_of(data, kind)}")
    if not isinstance(content.media_type, str) or not (name is None or isinstance(name, str)):
        raise TypeError(f"{kind}(data, media_type, name) takes bytes and two texts.")
    if not data:
        raise ValueError(f"The data of {_a(kind)} is empty.")
    _check_size(kind, len(data))
    given = content.media_type.partition(";")[0].strip().lower().replace("image/jpg", "image/jpeg")
    object.__setattr__(content, "media_type", _media_type(type(content), data, given))
    KINDS_MADE.add(kind)


def _fix_of(data: object, kind: str) -> str:
    if isinstance(data, bytearray | memoryview):
        return "Write bytes(data)."
    return f"Write {kind}.from_file(path) for a file." if isinstance(data, str | os.PathLike) else ""


def _check_size(kind: str, size: int) -> None:
    if size > MAX_CONTENT_BYTES:
        fix = "Scale it down" if kind == "Image" else "Split it"
        most = _size(MAX_CONTENT_BYTES)
        raise ValueError(f"The data of {_a(kind)} has {_size(size)}, and may have at most {most}. {fix}.")


def _a(kind: str) -> str:
    return f"an {kind}" if kind == "Image" else f"a {kind}"


def _media_type(cls: Any, data: bytes, given: str) -> str:
    found = _detected(data)
    if cls is Document and given in TEXT_TYPES:
        try:
            data.decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"The data of a {given} Document must be UTF-8: {error.reason}.") from None
        return given
    known: Iterable[str] = _IMAGES.values() if cls is Image else ("application/pdf",)
    if given and given not in known:
        other = _OTHER_FORMS[b"<svg"] if given == "image/svg+xml" else ""
        names = ", ".join(sorted({*known, *(TEXT_TYPES if cls is Document else ())}))
        what = f"This is {other}" if other else f"It takes: {names}"
        raise ValueError(f"{cls.__name__} does not take the media type {given[:100]!r}. {what}.")
    if found not in known:
        what = _other_form(data) if found is None else found
        forms = "a PNG, JPEG, GIF or WebP" if cls is Image else "a PDF"
        raise ValueError(f"The data of {_a(cls.__name__)} must be {forms}, and this is {what}.")
    if given and found != given:
        raise ValueError(f"The media type is {given}, but the data is {found}. Leave media_type= out, or correct it.")
    assert found is not None
    return found


def _detected(data: bytes) -> str | None:
    """The media type that the bytes themselves say."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    return "application/pdf" if b"%PDF-" in data[:1024] else None


def _other_form(data: bytes) -> str:
    start = data[:1024].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if b"<svg" in start:
        return _OTHER_FORMS[b"<svg"]
    return next((what for mark, what in _OTHER_FORMS.items() if start.startswith(mark.lower())), "something else")


def _from_file(cls: Any, path: Path) -> Any:
    with path.open("rb") as file:
        _check_size(cls.__name__, os.fstat(file.fileno()).st_size)
        data = file.read(MAX_CONTENT_BYTES + 1)  # a pipe has no size, and a file may grow
    given = _TEXTS.get(path.suffix.lower(), "") if cls is Document else ""
    try:
        return cls(data, given or ("application/pdf" if cls is Document else ""), path.name)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


# As text.


def _described(content: Any) -> str:
    name = "" if content.name is None else f" {shown_name(content)}"
    return f"[{content._kind}{name}, {content.media_type}, {_size(len(content.data))}]"


def _shown(content: Any) -> str:
    name = "" if content.name is None else f"{shown_name(content)!r}, "
    return f"{type(content).__name__}({name}{content.media_type}, {_size(len(content.data))})"


def shown_name(content: Content) -> str:
    r"""The name as the model reads it: short, on one line, nothing in it acts on what stands around it.

    >>> shown_name(Document(b"hi", "text/plain", "a](b)\n# Rule.txt"))
    'a_(b)__ Rule.txt'
    """
    name = _UNFIT.sub("_", content.name or "")
    if len(name) > _MAX_NAME_CHARS:
        name = f"{name[: _MAX_NAME_CHARS - 13]}...{name[-10:]}"
    return name or f"unnamed {content._kind}"  # pyright: ignore[reportPrivateUsage]


def _size(count: int) -> str:
    if count < 1024:
        return f"{count} bytes"
    return f"{count / 1024:.0f} KB" if count < 1024 * 1000 else f"{count / (1024 * 1024):.1f} MB".replace(".0 ", " ")


size_text = _size
"""A number of bytes for a reader."""


def bytes_text(data: bytes) -> str:
    """What stands for bytes in a text for the model: how many, and what to use instead."""
    found = _detected(data[:1024])
    fix = "Image or Document" if found is None else "Document" if found == "application/pdf" else "Image"
    what = "" if found is None else f" of {found}"
    return f"[{len(data)} bytes{what}, not shown. A weakincentives.content {fix} would be, and decoded text.]"


# What is in a value.


def contents_in(value: object) -> tuple[Content, ...]:
    """The images and documents in a value, in order, each once.

    Looks into dataclasses, pydantic models, lists, tuples, sets and the values of mappings.
    """
    if not KINDS_MADE or value is None or type(value) in _LEAVES:
        return ()
    return tuple(dict.fromkeys(_found(value, ())))


_LEAVES: frozenset[Any] = frozenset({str, int, float, bool, bytes})


def _found(value: object, above: tuple[int, ...]) -> Iterator[Content]:
    if type(value) in _LEAVES or value is None:
        return
    if isinstance(value, Content):
        yield value
        return
    if id(value) in above or len(above) == _MAX_DEPTH or isinstance(value, type):
        return
    for part in _parts(value):
        yield from _found(part, (*above, id(value)))


def _parts(value: object) -> Iterable[object]:
    if isinstance(value, list | tuple | AbstractSet):
        return cast("Iterable[object]", value)
    if isinstance(value, Mapping):
        return tuple(cast("Mapping[object, object]", value).values())
    if is_dataclass(value):
        return [getattr(value, field.name, None) for field in fields(value)]
    if hasattr(type(value), "model_fields"):
        return tuple(vars(value).values())
    return ()


def with_parts_as_text(parts: object) -> tuple[str, tuple[Content, ...]]:
    """A message in parts as its text, with a line where each image or document stands, and these in order.

    `TypeError` for what is neither text nor content.
    """
    items = [parts] if isinstance(parts, str | Image | Document) else parts
    if not isinstance(items, Sequence) or isinstance(items, bytes | bytearray | memoryview):
        raise TypeError(_WRONG_PART.format(type(parts).__name__))
    texts: list[str] = []
    contents: list[Content] = []
    for item in cast("Sequence[object]", items):
        if isinstance(item, Content):
            contents.append(item)
            texts.append(item.describe())
        elif isinstance(item, str):
            texts.append(item)
        else:
            raise TypeError(_WRONG_PART.format(type(item).__name__))
    return "\n".join(texts), tuple(contents)


_WRONG_PART = "A message is a text, an Image or a Document, or a sequence of these; got {}."


# As JSON: base64, unless the one who writes it keeps contents apart, or is writing for a reader.


class KeptApart(NamedTuple):
    """Where contents are kept that stand in data by a name alone, as a run record keeps them."""

    put: Callable[[bytes], str]
    get: Callable[[str], bytes]


_FOR_READERS = KeptApart(bytes.hex, bytes.fromhex)
_APART = "blob:"


@final
class kept_apart:  # noqa: N801 - used like a function
    """While it is open, contents are written as names, and read by these. For the calling thread or task.

    What is set is a weak reference: where an interrupt comes before the block is entered, or in place of its end, it
    ends with the block all the same.
    """

    __slots__ = ("__weakref__", "_token", "way")

    def __init__(self, way: KeptApart) -> None:
        self.way: KeptApart = way

    def __enter__(self) -> None:
        self._token = _open.set(ref(self))

    def __exit__(self, *exc: object) -> None:
        _open.reset(self._token)


_open: ContextVar[ref[kept_apart] | None] = ContextVar("weakincentives_contents", default=None)


def for_readers() -> kept_apart:
    """While it is open, contents are written as their one line of text, which is not parsed again."""
    return kept_apart(_FOR_READERS)


def _way() -> KeptApart | None:
    held = _open.get()
    block = None if held is None else held()
    return None if block is None else block.way


def _written(data: bytes) -> str:
    way = _way()
    return base64.b64encode(data).decode("ascii") if way is None else _APART + way.put(data)


def _read(data: object) -> bytes:
    if isinstance(data, bytes):
        return data
    if not isinstance(data, str):
        raise ValueError("Expected base64 text")  # noqa: TRY004 - pydantic makes a failure of it
    if data.startswith(_APART):
        way = _way()
        if way is None:
            raise ValueError("The content is kept in a run record; read it through its store")
        return way.get(data.removeprefix(_APART))
    if len(data) > MAX_CONTENT_BYTES // 3 * 4 + 4:
        raise ValueError(f"At most {_size(MAX_CONTENT_BYTES)} fit")
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("Not valid base64") from None


def _serialised(value: Any, handler: Any) -> Any:
    return value.describe() if _way() is _FOR_READERS and isinstance(value, Content) else handler(value)


def _core_schema(cls: Any) -> Any:
    from pydantic_core import core_schema as made  # noqa: PLC0415 - of those who have imported it

    text = made.str_schema(strict=True, metadata={"pydantic_js_updates": {"contentEncoding": "base64"}})
    data = made.json_or_python_schema(
        made.no_info_after_validator_function(_read, text),
        made.no_info_plain_validator_function(_read),
        serialization=made.plain_serializer_function_ser_schema(_written, when_used="json"),
    )
    optional = made.with_default_schema(made.nullable_schema(made.str_schema(strict=True)), default=None)
    usual = cls.__dataclass_fields__["media_type"].default
    media_type = made.with_default_schema(made.str_schema(strict=True), default=usual)
    arguments = made.dataclass_args_schema(
        cls.__name__,
        [
            made.dataclass_field("data", data, kw_only=False),
            made.dataclass_field("media_type", media_type, kw_only=False),
            made.dataclass_field("name", optional, kw_only=False),
        ],
    )
    return made.dataclass_schema(
        cls,
        arguments,
        ["data", "media_type", "name"],
        post_init=True,
        frozen=True,
        slots=True,
        serialization=made.wrap_serializer_function_ser_schema(_serialised, schema=None),
    )


class _Serializer:
    """The serializer of the class, made when it is first asked for: importing this module imports no pydantic."""

    def __get__(self, instance: object, owner: Any) -> Any:
        from pydantic_core import SchemaSerializer  # noqa: PLC0415

        made = SchemaSerializer(_core_schema(owner))
        owner.__pydantic_serializer__ = made
        return made


for _cls in (Image, Document):
    _cls.__pydantic_serializer__ = _Serializer()  # pyright: ignore[reportAttributeAccessIssue]


__all__ = ["Document", "Image"]
