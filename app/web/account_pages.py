"""The small HTML pages outside Streamlit: sign in, first set-up, choose a password.

Each page is one self-contained document: no script, no file beside it. Every value is escaped where it goes in.
"""

from __future__ import annotations

from html import escape

from app.web.passwords import MIN_LENGTH
from data.labels.people import MAX_NAME_LENGTH

_STYLE = """
:root{color-scheme:light dark;--back:#f4f5f8;--card:#fff;--text:#1c2030;--soft:#565d72;--line:#d5d9e3;--accent:#3b5bdb;
--bad:#b42318;--bad-back:#fdecea}
@media(prefers-color-scheme:dark){:root{--back:#0e1117;--card:#171b25;--text:#eceef5;--soft:#a6adc0;--line:#343a4a;
--accent:#4868f0;--bad:#ff9b92;--bad-back:#3a1a1c}}
*{box-sizing:border-box}
body{font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;margin:0;min-height:100vh;display:grid;
place-items:center;padding:1.5rem;background:var(--back);color:var(--text)}
main{width:100%;max-width:24rem;background:var(--card);border:1px solid var(--line);border-radius:.75rem;padding:2rem;
box-shadow:0 1px 3px rgb(0 0 0/.08)}
.brand{display:flex;align-items:center;gap:.6rem;font-weight:600;color:var(--soft);margin:0 0 1.25rem}
h1{font-size:1.4rem;line-height:1.25;margin:0 0 .35rem}
p{margin:0 0 1.1rem;color:var(--soft)}
form{display:grid;gap:1rem}
label{display:grid;gap:.3rem;font-weight:500}
.hint{font-size:.875rem;margin:-.65rem 0 0}
input{font:inherit;color:inherit;background:transparent;border:1px solid var(--line);border-radius:.5rem;
padding:.6rem .75rem;width:100%}
button{font:inherit;font-weight:600;color:#fff;background:var(--accent);border:1px solid var(--accent);
border-radius:.5rem;padding:.65rem;cursor:pointer;margin-top:.25rem}
button:hover{filter:brightness(1.08)}
a{color:inherit}
:focus-visible{outline:3px solid var(--accent);outline-offset:2px}
.problem{color:var(--bad);background:var(--bad-back);border-radius:.5rem;padding:.65rem .75rem;margin:0 0 1.1rem}
"""
_MARK = (
    '<svg width="28" height="28" viewBox="0 0 64 64" aria-hidden="true"><rect width="64" height="64" rx="14" '
    'fill="#3b5bdb"/><rect x="14" y="15" width="36" height="8" rx="4" fill="#fff"/><rect x="14" y="28" width="26" '
    'height="8" rx="4" fill="#fff" opacity=".85"/><rect x="14" y="41" width="16" height="8" rx="4" fill="#fff" '
    'opacity=".7"/></svg>'
)


def sign_in_page(problem: str = "", name: str = "", next_path: str = "/") -> str:
    fields = (
        _field("Name", "name", "username", value=name, focus=not name)
        + _field("Password", "password", "current-password", kind="password", focus=bool(name))
        + f'<input type="hidden" name="next" value="{escape(next_path)}">'
    )
    hint = "<p>Your admin gives you an account, or a new link if you forgot your password.</p>"
    return _page("Sign in", f"<h1>Sign in</h1>{hint}{_problem(problem)}{_form('/signin', fields, 'Sign in')}")


def set_up_page(token: str, problem: str = "", name: str = "") -> str:
    intro = "<p>You are the first one here. This account can add people and see everything.</p>"
    fields = _hidden_token(token) + _field("Name", "name", "username", value=name, focus=not name) + _new_password()
    form = _form("/setup", fields, "Create the admin account")
    return _page("Set up rankloop", f"<h1>Create the first account</h1>{intro}{_problem(problem)}{form}")


def invitation_page(token: str, name: str, problem: str = "") -> str:
    intro = "<p>Choose the password with which you sign in from now on.</p>"
    # Password managers file the password under this name.
    known = f'<input type="hidden" name="name" autocomplete="username" value="{escape(name)}">'
    form = _form("/invite", _hidden_token(token) + known + _new_password(), "Save and sign in")
    return _page("Choose a password", f"<h1>Welcome, {escape(name)}</h1>{intro}{_problem(problem)}{form}")


def bad_link_page(what_to_do: str) -> str:
    text = f'<p>{escape(what_to_do)}</p><p><a href="/signin">Go to the sign-in page</a></p>'
    return _page("This link does not work", f"<h1>This link does not work any more</h1>{text}")


def _new_password() -> str:
    first = _field("Password", "password", "new-password", kind="password", described_by="rule")
    second = _field("The same password again", "again", "new-password", kind="password")
    return f'{first}<p class="hint" id="rule">At least {MIN_LENGTH} characters.</p>{second}'


def _field(
    label: str, name: str, autocomplete: str, *, kind: str = "text", value: str = "", focus: bool = False,
    described_by: str = "",
) -> str:  # fmt: skip
    extra = f' value="{escape(value)}" maxlength="{MAX_NAME_LENGTH}"' if kind == "text" else ""
    extra += f' aria-describedby="{described_by}"' if described_by else ""
    extra += " autofocus" if focus else ""
    extra += f' minlength="{MIN_LENGTH}"' if autocomplete == "new-password" else ""
    box = f'<input name="{name}" type="{kind}" autocomplete="{autocomplete}" required{extra}>'
    return f"<label>{escape(label)}{box}</label>"


def _hidden_token(token: str) -> str:
    return f'<input type="hidden" name="token" value="{escape(token)}">'


def _form(action: str, fields: str, button: str) -> str:
    return f'<form method="post" action="{action}">{fields}<button>{escape(button)}</button></form>'


def _problem(problem: str) -> str:
    return f'<div class="problem" role="alert">{escape(problem)}</div>' if problem else ""


def _page(title: str, body: str) -> str:
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)} · rankloop</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<style>{_STYLE}</style></head>"
        f'<body><main><div class="brand">{_MARK}rankloop</div>{body}</main></body></html>'
    )
