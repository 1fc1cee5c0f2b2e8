"""Signing in and out, the first admin, invitations: routes beside Streamlit, since only they can set a cookie.

A session's token is in an HttpOnly cookie; the store has its hash. Passwords are hashed in threads, two at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar
from urllib.parse import parse_qs

from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from app.web.account_pages import bad_link_page, invitation_page, set_up_page, sign_in_page
from app.web.gate import PERSON, return_path, session_token
from app.web.passwords import MAX_FAILURES_OF_ADDRESS, Brake, check_new_password, hash_password, verify_password
from data.errors import InvalidInput, NotFound, ProjectError, StoreUnavailable
from data.labels.people import (
    SESSION_DAYS,
    close_session,
    has_admin,
    invited_person,
    open_session,
    password_hash,
    use_invitation,
)
from data.records import Person
from data.store import Store, Tx

MAX_FORM_BYTES = 16_384
T = TypeVar("T")
_SIGNED_OUT = "You are signed out: the session has ended, or an admin has changed this account. What was saved is safe."
_NO_LINK = (
    "It was used already, it is too old, or something ended it: a newer link, another role, the end of the account. "
    "Ask your admin for a new one."
)
_NO_SET_UP = (
    "Either the first admin exists already (then sign in), or a newer link was made: "
    "each start of the server prints a new one until there is an admin."
)


class Accounts:
    """The routes. `cookie` is the name of the session cookie."""

    def __init__(self, store: Store, cookie: str) -> None:
        self._store, self._cookie = store, cookie
        self._brake, self._address_brake = Brake(), Brake(MAX_FAILURES_OF_ADDRESS)
        self._hashers = CapacityLimiter(2)  # argon2 takes 64 MiB each

    def routes(self) -> list[Route]:
        return [
            Route("/signin", self.sign_in_form, methods=["GET"]),
            Route("/signin", self.sign_in, methods=["POST"]),
            Route("/signout", self.sign_out, methods=["POST"]),
            Route("/setup", self.set_up_form, methods=["GET"]),
            Route("/setup", self.set_up, methods=["POST"]),
            Route("/invite", self.invitation_form, methods=["GET"]),
            Route("/invite", self.accept_invitation, methods=["POST"]),
        ]

    async def sign_in_form(self, request: Request) -> Response:
        wanted = return_path(request.query_params.get("next"))
        if PERSON in request.scope:
            return RedirectResponse(wanted, 303)
        return _html(sign_in_page(_SIGNED_OUT if "ended" in request.query_params else "", next_path=wanted))

    async def sign_in(self, request: Request) -> Response:
        form = await _read_form(request)
        name, wanted = form.get("name", "").strip(), return_path(form.get("next"))
        address = request.client.host if request.client else ""
        key = f"{name.casefold()}\n{address}"
        if (wait_s := max(self._brake.wait_s(key), self._address_brake.wait_s(address))) > 0:
            minutes = int(wait_s // 60) + 1
            problem = f"Too many wrong passwords. Try again in {minutes} {'minute' if minutes == 1 else 'minutes'}."
            return _html(sign_in_page(problem, name, wanted), 429, {"retry-after": str(int(wait_s) + 1)})
        account = await self._look(lambda tx: password_hash(tx, name))
        hashed = account[1] if account else None
        password = form.get("password", "")
        is_right = await to_thread.run_sync(verify_password, password, hashed, limiter=self._hashers)
        if account is None or not is_right:
            self._brake.failed(key)
            self._address_brake.failed(address)
            return _html(sign_in_page("The name or the password is wrong.", name, wanted), 401)
        self._brake.succeeded(key)
        return await self._signed_in(request, account[0], wanted)

    async def sign_out(self, request: Request) -> Response:
        token = session_token(request, self._cookie)
        if token:
            await self._write(lambda tx: close_session(tx, token))
        response = RedirectResponse("/signin", 303)
        response.delete_cookie(self._cookie, path="/", httponly=True, samesite="lax")
        return response

    async def set_up_form(self, request: Request) -> Response:
        token = request.query_params.get("token", "")
        if not await self._look(lambda tx: _is_set_up_token(tx, token)):
            return _html(bad_link_page(_NO_SET_UP), 410)
        return _html(set_up_page(token))

    async def set_up(self, request: Request) -> Response:
        form = await _read_form(request)
        token, name = form.get("token", ""), form.get("name", "").strip()
        if not await self._look(lambda tx: _is_set_up_token(tx, token)):
            return _html(bad_link_page(_NO_SET_UP), 410)
        try:
            person = await self._choose_password(form, admin_name=name)
        except NotFound:
            return _html(bad_link_page(_NO_SET_UP), 410)
        except StoreUnavailable:
            raise
        except ProjectError as error:
            return _html(set_up_page(token, str(error), name), 422)
        return await self._signed_in(request, person.id, "/")

    async def invitation_form(self, request: Request) -> Response:
        token = request.query_params.get("token", "")
        person = await self._look(lambda tx: _invited(tx, token))
        return _html(bad_link_page(_NO_LINK), 410) if person is None else _html(invitation_page(token, person.name))

    async def accept_invitation(self, request: Request) -> Response:
        form = await _read_form(request)
        token = form.get("token", "")
        person = await self._look(lambda tx: _invited(tx, token))
        if person is None:
            return _html(bad_link_page(_NO_LINK), 410)
        try:
            await self._choose_password(form)
        except NotFound:
            return _html(bad_link_page(_NO_LINK), 410)
        except InvalidInput as error:
            return _html(invitation_page(token, person.name, str(error)), 422)
        return await self._signed_in(request, person.id, "/")

    async def _choose_password(self, form: dict[str, str], admin_name: str | None = None) -> Person:
        password = form.get("password", "")
        check_new_password(password, form.get("again", ""))
        hashed = await to_thread.run_sync(hash_password, password, limiter=self._hashers)
        return await self._write(lambda tx: use_invitation(tx, form.get("token", ""), hashed, admin_name))

    async def _signed_in(self, request: Request, person_id: str, to: str) -> Response:
        token = await self._write(lambda tx: open_session(tx, person_id))
        response = RedirectResponse(to, 303)
        response.set_cookie(
            self._cookie,
            token,
            max_age=SESSION_DAYS * 86_400,
            path="/",
            httponly=True,
            samesite="lax",
            secure=request.url.scheme == "https",
        )
        return response

    async def _look(self, question: Callable[[Tx], T]) -> T:
        def in_transaction() -> T:
            with self._store.read() as tx:
                return question(tx)

        return await to_thread.run_sync(in_transaction)

    async def _write(self, change: Callable[[Tx], T]) -> T:
        def in_transaction() -> T:
            with self._store.begin() as tx:
                return change(tx)

        return await to_thread.run_sync(in_transaction)


def _is_set_up_token(tx: Tx, token: str) -> bool:
    is_good, person = invited_person(tx, token)
    return is_good and person is None and not has_admin(tx)


def _invited(tx: Tx, token: str) -> Person | None:
    is_good, person = invited_person(tx, token)
    return person if is_good and person is not None and person.disabled_at is None else None


def _html(page: str, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return HTMLResponse(page, status, {"cache-control": "no-store", **(headers or {})})


async def _read_form(request: Request) -> dict[str, str]:
    """The fields of a posted form; a body that is too long to be one is read no further and gives none."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FORM_BYTES:
            return {}
    fields = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True)
    return {name: values[0] for name, values in fields.items()}
