"""Texts that do harm where Markdown or HTML is read, and a way to see what a page reads as Markdown."""

from __future__ import annotations

from streamlit.testing.v1 import AppTest

HOSTILE = (
    "![x](http://example.org/leak.png) and $5 or $10",
    "<img src=http://example.org/leak.png onerror=alert(1)><style>body{display:none}</style>",
    "# A heading\n\n| a | b |\n|---|---|\n| :red[1] | :material/delete: |",
    "\u202eright to left\u202c \x07 \ufffd <meta http-equiv=refresh content=0>",
)


def markdown_of(app: AppTest) -> str:
    """Everything on the page that Streamlit reads as Markdown: texts, messages, labels, tables."""
    parts: list[str] = []
    for kind in ("markdown", "caption", "title", "header", "subheader", "error", "warning", "info", "success", "toast"):
        parts += [str(each.value) for each in app.get(kind)]
    for kind in (
        "button",
        "expander",
        "metric",
        "toggle",
        "selectbox",
        "text_input",
        "number_input",
        "tab",
        "progress",
    ):
        parts += [str(getattr(each, "label", "")) for each in app.get(kind)]
    return "\n".join(parts)
