"""Passwords: argon2id, and a brake on guessing. Nothing here knows the store or the web."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from functools import cache

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from data.errors import InvalidInput

MIN_LENGTH = 10
MAX_LENGTH = 1000  # argon2 reads all of it; nobody types more
MAX_FAILURES = 5
MAX_FAILURES_OF_ADDRESS = 50  # whoever tries many names from one place
WINDOW_S = 300.0
_MAX_KEYS = 10_000

_hasher = PasswordHasher()


def hash_password(password: str) -> str:
    """Return what is stored of a password. Takes a tenth of a second and 64 MiB: call it in a thread."""
    return _hasher.hash(password)


def verify_password(password: str, hashed: str | None) -> bool:
    """Whether the password is right; `hashed` None (nobody of that name) takes as long and is never right."""
    if len(password) > MAX_LENGTH:
        return False
    try:
        return _hasher.verify(hashed or _hash_of_nobody(), password) and hashed is not None
    except (VerificationError, InvalidHashError):
        return False


def check_new_password(password: str, again: str) -> None:
    """Raises InvalidInput that says what is wrong with a newly chosen password."""
    if not MIN_LENGTH <= len(password) <= MAX_LENGTH:
        raise InvalidInput(f"The password has {len(password)} characters; {MIN_LENGTH} to {MAX_LENGTH} are needed.")
    if password != again:
        raise InvalidInput("The two passwords differ. Type the same one twice.")


class Brake:
    """Counts failures by key; after so many within five minutes the key has to wait."""

    def __init__(self, max_failures: int = MAX_FAILURES, clock: Callable[[], float] = time.monotonic) -> None:
        self._max, self._clock = max_failures, clock
        self._failures: dict[str, deque[float]] = {}

    def wait_s(self, key: str) -> float:
        """How many seconds `key` has to wait before the next try; 0 if it need not."""
        recent = self._recent(key)
        return recent[0] + WINDOW_S - self._clock() if len(recent) >= self._max else 0.0

    @property
    def n_keys(self) -> int:
        """Of how many names or addresses failures are remembered."""
        return len(self._failures)

    def failed(self, key: str) -> None:
        if len(self._failures) >= _MAX_KEYS:
            self._failures = {each: times for each, times in self._failures.items() if self._recent(each)}
        self._failures.setdefault(key, deque(maxlen=self._max)).append(self._clock())

    def succeeded(self, key: str) -> None:
        self._failures.pop(key, None)

    def _recent(self, key: str) -> deque[float]:
        times = self._failures.get(key, deque())
        while times and times[0] <= self._clock() - WINDOW_S:
            times.popleft()
        return times


@cache
def _hash_of_nobody() -> str:
    return hash_password("nobody has this password")
