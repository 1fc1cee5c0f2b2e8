"""Text at the border: cleaning, fingerprints, encodings.

Every text that enters the store comes through `clean_text`, so that both databases, Parquet, the browser and the
tokenizers accept it.
"""

from __future__ import annotations

import codecs
import hashlib
import json
from collections.abc import Sequence

from data.errors import InvalidInput
from data.records import Message

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
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\x00", "")
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if _has_surrogate(text) else text


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= char <= "\udfff" for char in text)


def text_fingerprint(text: str) -> str:
    """Return a hash that is equal for texts which differ in white space only."""
    return hashlib.sha256(" ".join(text.split()).encode()).hexdigest()[:32]


def messages_fingerprint(messages: Sequence[Message]) -> str:
    """Return a hash of the messages: roles and contents, outer white space ignored."""
    pairs = [[message["role"], message["content"].strip()] for message in messages]
    return hashlib.sha256(json.dumps(pairs, ensure_ascii=False).encode()).hexdigest()[:32]


def decode_utf8(raw: bytes, where: str) -> str:
    """Decode UTF-8, with or without a byte order mark.

    Raises InvalidInput that names the encoding found, or the line of the first bad byte.
    """
    for bom, name in _BOMS:
        if raw.startswith(bom):
            raise InvalidInput(f"{where}: the file is {name}; save it as UTF-8 and import it again")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InvalidInput(
            f"{where}, line {line}: byte 0x{raw[error.start]:02x} is not UTF-8 (perhaps Latin-1 or Windows-1252); "
            "save the file as UTF-8 and import it again"
        ) from None
