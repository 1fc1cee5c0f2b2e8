"""Passwords and the brake on guessing them."""

from __future__ import annotations

from typing import Any

import pytest

from app.web.passwords import (
    MAX_FAILURES,
    MIN_LENGTH,
    WINDOW_S,
    Brake,
    check_new_password,
    hash_password,
    verify_password,
)
from data.errors import InvalidInput


def test_only_the_right_password_is_right() -> None:
    hashed = hash_password("correct horse")
    assert hashed.startswith("$argon2id$")
    assert hashed != hash_password("correct horse"), "each hash has a salt of its own"
    assert verify_password("correct horse", hashed)
    for wrong in ("correct horse ", "", "Correct horse", "x" * 5000):
        assert not verify_password(wrong, hashed)


def test_nobody_has_no_password() -> None:
    for guess in ("", "nobody has this password", "x"):
        assert not verify_password(guess, None)
    assert not verify_password("x", "not a hash")


@pytest.mark.parametrize(
    ("password", "again", "words"),
    [
        ("short", "short", f"{MIN_LENGTH} to"),
        ("", "", "0 characters"),
        ("x" * 1001, "x" * 1001, "1001 characters"),
        ("long enough", "long enougH", "differ"),
    ],
)
def test_a_bad_new_password_is_explained(password: str, again: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        check_new_password(password, again)


def test_a_good_new_password_is_taken() -> None:
    check_new_password("long enough", "long enough")


def test_the_brake_holds_after_five_failures_and_lets_go(clock: Any) -> None:
    brake = Brake(clock=clock)
    for _ in range(MAX_FAILURES):
        assert brake.wait_s("ann") == 0
        brake.failed("ann")
        clock.advance(10)
    assert brake.wait_s("ann") == WINDOW_S - 10 * MAX_FAILURES
    assert brake.wait_s("ben") == 0
    clock.advance(WINDOW_S - 10 * MAX_FAILURES)
    assert brake.wait_s("ann") == 0, "the oldest failure is five minutes old"
    brake.failed("ann")
    assert brake.wait_s("ann") > 0


def test_success_forgets_failures(clock: Any) -> None:
    brake = Brake(clock=clock)
    for _ in range(MAX_FAILURES - 1):
        brake.failed("ann")
    brake.succeeded("ann")
    brake.failed("ann")
    assert brake.wait_s("ann") == 0


def test_the_brake_does_not_grow_without_end(clock: Any) -> None:
    brake = Brake(clock=clock)
    for n in range(10_000):
        brake.failed(f"name {n}")
    clock.advance(WINDOW_S + 1)
    brake.failed("one more")
    assert brake.n_keys == 1
