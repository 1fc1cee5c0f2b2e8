"""Who is signed in, and the way out: a form of our own, since a Streamlit button can't end a browser's session."""

from __future__ import annotations

from app.widgets.components import register
from data.records import Person

_mount = register(
    "account",
    js="account.js",
    css="account.css",
    html='<form method="post" action="/signout"><span class="who"></span><button>Sign out</button></form>',
)


def account(who: Person) -> None:
    """Draw the signed-in person's name and role with the sign-out button."""
    _mount(key="account", data={"person": who.id, "name": who.name, "role": who.role.value})
