"""Text ids that sort by the time they were made.

16 characters of Crockford's base 32, lower case: 9 for the time in milliseconds (45 bits, good until the year 3084),
7 random ones (35 bits).
"""

from __future__ import annotations

import secrets

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
ID_LENGTH = 16


def new_id(now: float) -> str:
    """Return a new id for the time `now` (seconds since the epoch, UTC)."""
    number = (int(now * 1000) << 35) | secrets.randbits(35)
    return "".join([_PAIRS[(number >> shift) & 1023] for shift in range(70, -1, -10)])
