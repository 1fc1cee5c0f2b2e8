"""Who is signed in, the way out and the way back in.

A form and a link of our own: a Streamlit button can't end a browser's session, and its links open a new tab.
"""

from __future__ import annotations

from app.widgets.base.components import register
from data.records import Person

_mount = register(
    "account",
    js="account.js",
    css="account.css",
    html='<form method="post" action="/signout"><span class="who"></span><button>Sign out</button></form>',
)
_mount_way_in = register(
    "signed_out",
    js="account.js",
    css="account.css",
    html=(
        '<div class="way-in"><p>You are signed out. What you have ranked is safe.</p>'
        '<a href="/signin">Sign in</a></div>'
    ),
)


def account(who: Person) -> None:
    """Draw the signed-in person's name and role with the sign-out button.

    It also asks for a run of the whole page when the server has been away: a new server does not know the fragments of
    an open page, and says nothing when they ask.
    """
    data = {"person": who.id, "name": who.name, "role": who.role.value}
    _mount(key="account", data=data, on_back_change=_run_the_page)


def _run_the_page() -> None:
    """Nothing to do: the run that follows is what was asked for."""


def signed_out() -> None:
    """Draw the way back in, for a page that was open when its session ended."""
    _mount_way_in(key="signed_out")
