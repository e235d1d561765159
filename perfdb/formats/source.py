"""A file to be read: size-capped, unpacked, decoded, and parsed at most once.

The cap counts unpacked bytes, so a small .gz cannot grow past it. Line formats are read as a stream.
"""

from __future__ import annotations

import codecs
import gzip
import io
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

from perfdb.formats.errors import FormatError
from perfdb.formats.jsontext import parse_json

MAX_BYTES = 128 * 2**20
HEAD_BYTES = 64 * 2**10
_CHUNK = 256 * 2**10

_ARCHIVES = {b"PK\x03\x04": "zip", b"(\xb5/\xfd": "zstd", b"\xfd7zXZ\x00": "xz", b"BZh": "bzip2"}
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


@dataclass(frozen=True)
class Line:
    """One line of text without its end. `number` counts from 1."""

    number: int
    text: str

    @property
    def at(self) -> str:
        return f"line {self.number}"


@dataclass(frozen=True)
class Record:
    """One JSON value of a file: the whole document, or one line of a file with an object a line."""

    at: str
    value: Any


class Source:
    """`data` in memory or a file at `path`. Every method raises FormatError for what cannot be decoded.

    `path` also serves readers whose format is several files side by side (criterion, asv).
    """

    def __init__(
        self, data: bytes | None = None, path: Path | None = None, max_bytes: int = MAX_BYTES
    ) -> None:
        if (data is None) == (path is None):
            raise ValueError("a source is either data or a path")
        self._data = data
        self.path = path
        self.max_bytes = max_bytes
        self.format = "auto"

    def error(self, at: str, reason: str) -> FormatError:
        return FormatError(self.format, at, reason)

    # -- bytes -----------------------------------------------------------------------------------------------

    def _open_packed(self) -> BinaryIO:
        if self._data is not None:
            return io.BytesIO(self._data)
        assert self.path is not None
        try:
            return self.path.open("rb")
        except OSError as error:
            raise self.error(str(self.path), error.strerror or "cannot be opened") from None

    def chunks(self) -> Iterator[bytes]:
        """The unpacked bytes piece by piece, never more than `max_bytes` in all."""
        total = 0
        with self._open_packed() as packed:
            try:
                magic = packed.read(6)
                packed.seek(0)
                stream: Any = gzip.GzipFile(fileobj=packed) if magic[:2] == b"\x1f\x8b" else packed
                self._refuse_archive(magic)
                while chunk := stream.read(_CHUNK):
                    total += len(chunk)
                    if total > self.max_bytes:
                        raise self.error(
                            f"byte {self.max_bytes}", f"larger than {self.max_bytes} bytes unpacked"
                        )
                    yield chunk
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                raise self.error(f"byte {total} unpacked", f"damaged gzip data: {error}") from None
            except OSError as error:
                raise self.error(str(self.path or ""), error.strerror or str(error)) from None

    def _refuse_archive(self, magic: bytes) -> None:
        for mark, name in _ARCHIVES.items():
            if magic.startswith(mark):
                raise self.error("byte 0", f"{name} archives are not read: unpack it first (.gz is)")

    @cached_property
    def head(self) -> str:
        """The first 64 KiB as text, for telling formats apart; undecodable bytes are replaced."""
        start = b""
        for chunk in self.chunks():
            start += chunk
            if len(start) >= HEAD_BYTES:
                break
        start = start[:HEAD_BYTES]
        if start[:2] == b"\x1f\x8b":
            raise self.error("byte 0 unpacked", "gzip inside gzip is not read")
        mark = _encoding(start)
        return start[mark.skip :].decode(mark.name, errors="replace")

    # -- text ------------------------------------------------------------------------------------------------

    @cached_property
    def text(self) -> str:
        """The whole file. UTF-8, or UTF-16 where a byte order mark says so."""
        data = b"".join(self.chunks())
        mark = _encoding(data[:4])
        try:
            return data[mark.skip :].decode(mark.name)
        except UnicodeDecodeError as error:
            raise self.error(f"byte {mark.skip + error.start}", f"not {mark.name}: {error.reason}") from None

    def lines(self) -> Iterator[Line]:
        """The file line by line, as a stream; CRLF is accepted."""
        number, decoder, seen = 0, None, 0
        unfinished: list[str] = []
        for chunk in self.chunks():
            data = chunk
            if decoder is None:
                mark = _encoding(chunk[:4])
                decoder = codecs.getincrementaldecoder(mark.name)()
                data, seen = chunk[mark.skip :], mark.skip
            pieces = self._decode(decoder, data, seen).split("\n")
            seen += len(data)
            if len(pieces) > 1:
                pieces[0] = "".join(unfinished) + pieces[0]
                unfinished.clear()
            unfinished.append(pieces.pop())
            for piece in pieces:
                number += 1
                yield Line(number, piece.removesuffix("\r"))
        if decoder is not None:
            unfinished.append(self._decode(decoder, b"", seen, final=True))
        if rest := "".join(unfinished):
            yield Line(number + 1, rest.removesuffix("\r"))

    def _decode(
        self, decoder: codecs.IncrementalDecoder, chunk: bytes, seen: int, *, final: bool = False
    ) -> str:
        held = len(decoder.getstate()[0])
        try:
            return decoder.decode(chunk, final)
        except UnicodeDecodeError as error:
            raise self.error(
                f"byte {seen - held + error.start}", f"not {error.encoding}: {error.reason}"
            ) from None

    # -- JSON ------------------------------------------------------------------------------------------------

    @cached_property
    def is_json(self) -> bool:
        """Whether the text starts as a JSON object or array."""
        return self.head.lstrip()[:1] in ("{", "[")

    @cached_property
    def _first_record(self) -> Record | None:
        """The first line, where it is a JSON value of its own and more lines follow."""
        if not self.is_json or self.head.lstrip()[1:2] in ("\n", "\r"):
            return None
        filled = (line for line in self.lines() if line.text.strip())
        first, second = next(filled, None), next(filled, None)
        if first is None or second is None:
            return None
        try:
            return Record(first.at, parse_json(first.text, format=self.format))
        except FormatError:
            return None

    @property
    def is_json_lines(self) -> bool:
        """Whether the file holds one JSON value a line."""
        return self._first_record is not None

    @cached_property
    def document(self) -> Any:
        """The whole file as one JSON value."""
        if not self.is_json:
            raise self.error("line 1 column 1", "not a JSON object or array")
        return parse_json(self.text, format=self.format)

    @property
    def first(self) -> Any:
        """The document, or the value on the first line of a file with one value a line."""
        return self.document if self._first_record is None else self._first_record.value

    @property
    def first_object(self) -> dict[str, Any]:
        """`first` where it is an object, else an empty one."""
        first = self.first if self.is_json else None
        return first if isinstance(first, dict) else {}

    @property
    def first_array(self) -> list[Any]:
        """`first` where it is an array, else an empty one."""
        first = self.first if self.is_json else None
        return first if isinstance(first, list) else []

    def records(self) -> Iterator[Record | FormatError]:
        """The document, or line after line; a line that is no JSON comes as its error, and the rest follows."""
        if not self.is_json_lines:
            yield Record("$", self.document)
            return
        for line in self.lines():
            if not line.text.strip():
                continue
            try:
                yield Record(line.at, parse_json(line.text, format=self.format))
            except FormatError as error:
                yield FormatError(error.format, f"{line.at} {error.at.removeprefix('line 1 ')}", error.reason)


def open_source(data: bytes | str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> Source:
    """Bytes are content, a string or a path is a file's name."""
    if isinstance(data, bytes):
        return Source(data=data, max_bytes=max_bytes)
    path = Path(data)
    if path.is_dir():
        raise FormatError("auto", str(path), "is a folder: name a file in it, or import it with --history")
    if path.exists() and not path.is_file():
        return Source(data=_drained(path, max_bytes), max_bytes=max_bytes)
    return Source(path=path, max_bytes=max_bytes)


def _drained(path: Path, max_bytes: int) -> bytes:
    """What a pipe or a device gives, which can be read only once; one byte over the cap tells that it is over."""
    try:
        with path.open("rb") as stream:
            return stream.read(max_bytes + 1)
    except OSError as error:
        raise FormatError("auto", str(path), error.strerror or "cannot be read") from None


@dataclass(frozen=True)
class _Encoding:
    name: str
    skip: int


def _encoding(start: bytes) -> _Encoding:
    for mark, name in _MARKS:
        if start.startswith(mark):
            return _Encoding(name, len(mark))
    return _Encoding("utf-8", 0)
