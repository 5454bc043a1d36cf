"""Images and documents as values: what they hold, how they read, how they are saved."""

from __future__ import annotations

import copy
import pickle
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from weakincentives import Session, Tool, ToolResult
from weakincentives.content import Content, Document, Image, contents_in, with_parts_as_text
from weakincentives.errors import ParseError, PromptValidationError, SchemaError
from weakincentives.results import render_value
from weakincentives.runtime.messages import AnswerMessage, History, UserMessage
from weakincentives.serde import dump, dump_json, parse
from weakincentives.session import replace_latest

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
PHOTO = Image(PNG, name="photo.png")
BILL = Document(b"%PDF-1.7 ...", name="bill.pdf")
TABLE = Document(b"a,b\n1,2", "text/csv", "t.csv")
LONG = 33 * 1024 * 1024


@dataclass(frozen=True)
class Shot:
    url: str
    photo: Image
    more: tuple[Content, ...] = ()


@dataclass(frozen=True)
class Raw:
    data: bytes
    note: object = None


@dataclass(frozen=True)
class Drawn:
    photo: Image

    def render(self) -> str:
        return "A drawing."


class TestWhatTheyHold:
    @pytest.mark.parametrize(
        ("data", "kind"),
        [
            (PNG, "image/png"),
            (b"\xff\xd8\xff\xe0....", "image/jpeg"),
            (b"GIF89a....", "image/gif"),
            (b"RIFF\x00\x00\x00\x00WEBPVP8 ", "image/webp"),
        ],
    )
    def test_media_type_is_read_from_the_bytes(self, data: bytes, kind: str) -> None:
        """The media type of an image is what its bytes say, and may be given as well."""
        assert Image(data).media_type == Image(data, kind).media_type == kind

    @pytest.mark.parametrize(
        ("make", "said"),
        [
            (lambda: Image(b""), "The data of an Image is empty."),
            (lambda: Image(b"\x89PNG\r\n\x1a\n" + bytes(LONG)), "may have at most 32 MB. Scale it down."),
            (lambda: Document(b"%PDF-" + bytes(LONG)), "may have at most 32 MB. Split it."),
            (lambda: Image(b"<!doctype html>"), "and this is HTML or XML."),
            (lambda: Image(b" <?xml?><svg onload='x()'>"), "an SVG, which may hold scripts"),
            (lambda: Image(b"<svg/>", "image/svg+xml"), "an SVG, which may hold scripts"),
            (lambda: Image(PNG, "image/jpeg"), "The media type is image/jpeg, but the data is image/png."),
            (lambda: Image(b"%PDF-1.7"), "and this is application/pdf."),
            (lambda: Document(PNG), "must be a PDF, and this is image/png."),
            (lambda: Document(b"PK\x03\x04..."), "an office file; convert it to PDF."),
            (lambda: Document(b"\xff\xfe", "text/plain"), "must be UTF-8"),
            (lambda: Document(b"x", "video/mp4"), "does not take the media type 'video/mp4'"),
        ],
    )
    def test_wrong_data_is_refused(self, make: Any, said: str) -> None:
        """Empty, too large and unfit data is refused in a sentence that names the limit or the fix."""
        with pytest.raises(ValueError, match=r".") as caught:
            make()
        assert said in str(caught.value)
        assert "b'" not in str(caught.value)

    @pytest.mark.parametrize("data", ["photo.png", bytearray(PNG), None])
    def test_only_bytes_are_taken(self, data: Any) -> None:
        """Data that is not bytes is a TypeError, which says how to read a file."""
        with pytest.raises(TypeError, match=r"takes bytes, got"):
            Image(data)

    def test_from_file(self, tmp_path: Path) -> None:
        """A file is read by its content, with its name; one that does not fit is named in the error."""
        for name, content in {"a.png": PNG, "b.csv": b"a,b", "c.pdf": b"%PDF-1", "big.pdf": b"%PDF-"}.items():
            (tmp_path / name).write_bytes(content)
        with (tmp_path / "big.pdf").open("r+b") as file:
            file.truncate(LONG)
        assert Image.from_file(tmp_path / "a.png") == Image(PNG, "image/png", "a.png")
        assert Document.from_file(tmp_path / "b.csv").text == "a,b"
        assert Document.from_file(tmp_path / "c.pdf").text is None
        with pytest.raises(ValueError, match=r"c\.pdf: The data of an Image must be"):
            Image.from_file(tmp_path / "c.pdf")
        with pytest.raises(ValueError, match="at most 32 MB"):
            Document.from_file(tmp_path / "big.pdf")
        with pytest.raises(FileNotFoundError):
            Image.from_file(tmp_path / "none.png")

    def test_values(self) -> None:
        """They are equal by content, can be keys, and survive a pickle and a copy."""
        assert Image(PNG, name="photo.png") == PHOTO
        assert len({PHOTO, Image(PNG, name="photo.png"), Image(PNG)}) == 2
        assert pickle.loads(pickle.dumps(PHOTO)) == PHOTO
        assert copy.deepcopy(PHOTO) is PHOTO


class TestAsText:
    @pytest.mark.parametrize("name", ["a\nb.png", "a](b)[c.png", "x\u202egnp.exe", '"]\x1b[31m', "\x00", "n" * 500, ""])
    def test_hostile_names(self, name: str) -> None:
        """Whatever a name holds, the line stays one short line with one pair of brackets."""
        image = Image(PNG, name=name)
        for text in (str(image), repr(image)):
            assert text.isprintable()
            assert len(text) < 160
        assert str(image).count("[") == str(image).count("]") == 1
        assert image.name == name

    def test_no_repr_holds_the_bytes(self) -> None:
        """The repr of a value with images is short."""
        assert repr([PHOTO, Shot("u", PHOTO)]).count("PNG") == 0
        assert f"{BILL}" == "[document bill.pdf, application/pdf, 12 bytes]"

    @pytest.mark.parametrize(
        ("value", "text"),
        [
            (PHOTO, "[image photo.png, image/png, 264 bytes]"),
            ([PHOTO, "and", BILL], f"{PHOTO}\nand\n{BILL}"),
            (Shot("u", PHOTO, (BILL,)), f'{{"url":"u","photo":"{PHOTO}","more":["{BILL}"]}}'),
            ({"a": PHOTO}, f'{{"a":"{PHOTO}"}}'),
        ],
    )
    def test_results_render_as_lines(self, value: object, text: str) -> None:
        """In the text of a result an image is its one line, wherever it stands."""
        assert render_value(value) == text

    @pytest.mark.parametrize(
        "value",
        [PNG, Raw(PNG), [PNG], {"a": {"b": [PNG]}}, {PNG: 1}, (Raw(PNG),), Raw(PNG, object()), bytearray(PNG), {PNG}],
    )
    def test_bytes_are_never_shown_as_a_repr(self, value: object) -> None:
        """Bytes in a result are one line that says how many they are and what to use instead."""
        text = render_value(value)
        assert "[264 bytes of image/png, not shown. A weakincentives.content Image would be" in text
        assert "b'" not in text
        assert "\\x89" not in text

    def test_bytes_that_are_text_stay_text(self) -> None:
        """A field of bytes that holds text reads as that, as before."""
        assert render_value(Raw(b"plain")) == '{"data":"plain","note":null}'

    def test_message_in_parts(self) -> None:
        """A message in parts has a line where each image stands."""
        assert with_parts_as_text(["What is", PHOTO, "and", BILL]) == (f"What is\n{PHOTO}\nand\n{BILL}", (PHOTO, BILL))
        with pytest.raises(TypeError, match="got bytes"):
            with_parts_as_text(PNG)
        with pytest.raises(TypeError, match="got int"):
            with_parts_as_text(["x", 3])


class TestAsJson:
    @pytest.mark.parametrize("value", [PHOTO, BILL, TABLE, Shot("u", PHOTO, (PHOTO, BILL, TABLE))])
    def test_round_trip(self, value: Any) -> None:
        """What is dumped is parsed to an equal value, as data and as text."""
        kind = cast("type[Any]", type(value))
        assert parse(kind, dump(value)) == value
        assert parse(kind, dump_json(value)) == value

    @pytest.mark.parametrize(
        ("data", "said"),
        [
            ({"data": "!"}, "data: Not valid base64"),
            ({"data": 7}, "data: Expected type string, got integer 7"),
            ({"data": "aGk="}, "must be a PNG"),
            ({}, "data: Missing required field"),
            ({"data": "blob:" + "0" * 40}, "kept in a run record"),
        ],
    )
    def test_what_is_wrong_is_said(self, data: dict[str, Any], said: str) -> None:
        """JSON that is not an image is refused by `parse`, with what is wrong."""
        with pytest.raises(ParseError, match=said):
            parse(Image, data)

    def test_for_readers_it_is_a_line(self) -> None:
        """Data for readers, as logs write it, has the line and no base64."""
        assert dump(Shot("u", PHOTO), computed=True) == {"url": "u", "photo": str(PHOTO), "more": []}

    def test_sessions_are_saved_with_them(self) -> None:
        """A session with images in a slice is loaded as it was."""
        session = Session()
        session[Shot].register(Shot, replace_latest)
        session.dispatch(Shot("u", PHOTO, (BILL, PHOTO)))
        session[Image].append(PHOTO)
        loaded = Session.from_json(session.to_json(), types=[Shot])
        assert loaded[Shot].latest() == session[Shot].latest()
        assert loaded[Image].all() == (PHOTO,)

    def test_histories_hold_them(self) -> None:
        """A conversation with images is carried to another process as JSON."""
        history = History((UserMessage("See", (PHOTO, BILL)), AnswerMessage("c1", "OK", attachments=(TABLE,))))
        assert History.from_json(history.to_json()) == history


class TestWhatIsInAValue:
    def test_found_in_order_and_once(self) -> None:
        """Contents are found in fields, lists and mappings, in order; the same one is found once."""
        loop: list[Any] = [PHOTO]
        loop.append(loop)
        value = {"a": [Shot("u", PHOTO, (BILL,)), loop], "b": (TABLE, PHOTO), "c": Drawn(PHOTO), "d": b"x"}
        assert contents_in(value) == (PHOTO, BILL, TABLE)
        assert contents_in("text") == contents_in(None) == contents_in(Image) == ()

    def test_a_model_cannot_write_them(self) -> None:
        """A tool whose params hold an image is refused when it is built, with what to take instead."""

        def handle(params: Shot) -> ToolResult[str]:
            return ToolResult.ok(params.url)

        with pytest.raises(PromptValidationError, match=r"cannot write the bytes of one\. Take a path or an id"):
            Tool[Shot, str](name="take", description="Take it.", handler=handle)


def test_an_interrupt_leaves_nothing_open() -> None:
    """Wherever it comes while contents are written for readers: what is dumped afterwards can be read back."""
    image, before = Image(PNG), sys.gettrace()
    for at in range(1, 2000):
        seen = 0

        def interrupt(frame: Any, event: str, _: Any) -> Any:
            nonlocal seen
            frame.f_trace_opcodes = True
            seen += event == "opcode"
            if seen == at:  # noqa: B023 - called before the next one
                raise KeyboardInterrupt
            return interrupt

        with suppress(KeyboardInterrupt, SchemaError):  # pydantic makes the latter of what its functions raise
            sys.settrace(interrupt)
            try:
                dump_json(image, computed=True)
            finally:
                sys.settrace(before)
        assert parse(Image, dump_json(image)) == image
        if seen < at:
            return
    raise AssertionError("The writing did not come to its end.")
