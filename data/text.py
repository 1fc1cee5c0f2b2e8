"""Text at the border: cleaning, fingerprints, encodings.

Every text that enters the store comes through `clean_text`, so that both databases, Parquet, the browser and the
tokenizers accept it.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from data.errors import InvalidInput
from data.records import Message

MAX_DEPTH = 100
encode_json = json.JSONEncoder(ensure_ascii=False).encode
_BROKEN = re.compile("[\\x00\\ud800-\\udfff]")
_BOMS = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)


def clean_text(text: str) -> str:
    """Return `text` with newlines as \\n, without NUL, and with lone surrogates as U+FFFD.

    PostgreSQL refuses NUL in text; a lone surrogate can't be written as UTF-8 by anything. The rest, control
    characters that reorder text included, is kept: hiding it is not this function's business.
    """
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not is_broken(text):
        return text
    return text.replace("\x00", "").encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def is_broken(text: str) -> bool:
    """Whether the text has a NUL or a lone surrogate, which `clean_text` takes out."""
    return _BROKEN.search(text) is not None


def clean_value(value: Any, on_repair: Callable[[], None] = lambda: None, *, depth: int = MAX_DEPTH) -> Any:
    """Return a value from somebody's file as plain JSON that every part of the program can store.

    Texts are cleaned (`on_repair` is called for each broken one), numbers that are not finite become None; dates,
    decimals and the like become text. Raises InvalidInput if lists and objects are nested deeper than `depth`.
    """
    if isinstance(value, str):
        if is_broken(value):
            on_repair()
        return clean_text(value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if depth == 0:
        raise InvalidInput(f"lists and objects are nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, dict):
        return {
            str(clean_value(name, on_repair)): clean_value(each, on_repair, depth=depth - 1)
            for name, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [clean_value(each, on_repair, depth=depth - 1) for each in value]
    if isinstance(value, bytes):
        return f"<{len(value):,} bytes>"
    if hasattr(value, "item"):  # a number of NumPy or torch
        return clean_value(value.item())
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def dump_json(value: Any) -> str:
    """Write a value as JSON text that both databases take and every reader of JSON can read."""
    return json.dumps(clean_value(value), ensure_ascii=False, allow_nan=False)


def text_fingerprint(text: str) -> str:
    """Return a hash that is equal for texts which differ in white space only."""
    return hashlib.sha256(" ".join(text.split()).encode()).hexdigest()[:32]


def messages_fingerprint(messages: Sequence[Message]) -> str:
    """Return a hash of the messages: roles and contents, outer white space ignored."""
    pairs = [[message["role"], message["content"].strip()] for message in messages]
    return hashlib.sha256(encode_json(pairs).encode()).hexdigest()[:32]


def decode_utf8(raw: bytes, where: str) -> str:
    """Decode UTF-8, with or without a byte order mark.

    Raises InvalidInput that names the encoding found, or the line of the first bad byte.
    """
    refuse_other_encoding(raw[:4], where)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InvalidInput(f"{where}, line {line}: {not_utf8(raw[error.start])}") from None


def refuse_other_encoding(head: bytes, where: str) -> None:
    """Raises InvalidInput if the first four bytes of a file say that it is UTF-16 or UTF-32."""
    found = next((name for bom, name in _BOMS if head.startswith(bom)), None)
    if found is None and 0 in head:
        found = "UTF-16, or no text at all"
    if found is not None:
        raise InvalidInput(f"{where}: the file is {found}; save it as UTF-8 and import it again")


def not_utf8(byte: int) -> str:
    """What to say of a byte that UTF-8 does not allow."""
    return f"byte 0x{byte:02x} is {_ADVICE}"


_ADVICE = "not UTF-8 (perhaps Latin-1 or Windows-1252); save the file as UTF-8 and import it again"
