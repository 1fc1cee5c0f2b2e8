"""Our own components: JavaScript and CSS from `app/frontend`, served as files, never sent with each rerun.

Streamlit finds a packaged component only in a package that is named like its distribution, which ours is not. So the
folder is registered by hand, once for each running Streamlit. These are internal names of Streamlit 1.67; a test holds
them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import streamlit as st
from streamlit.components.v2.component_manager import BidiComponentManager
from streamlit.components.v2.get_bidi_component_manager import get_bidi_component_manager
from streamlit.components.v2.manifest_scanner import ComponentConfig, ComponentManifest

NAMESPACE = "rankloop"
FRONTEND = "frontend"
PACKAGE = Path(__file__).parents[2]
Mount = Callable[..., Any]


def register(name: str, js: str, css: str | None, html: str) -> Mount:
    """Return the function that draws the component; call this once, at module level.

    `js`, `css`: names of files in `app/frontend`. `html`: what the component starts with. Always draw with a `key`.
    """

    def mount(**arguments: Any) -> Any:
        return _renderer(get_bidi_component_manager(), name, js, css, html)(**arguments)

    return mount


@functools.lru_cache(maxsize=32)
def _renderer(manager: BidiComponentManager, name: str, js: str, css: str | None, html: str) -> Mount:
    config = ComponentConfig(name=name, asset_dir=FRONTEND)
    manager.register_from_manifest(ComponentManifest(NAMESPACE, "1", [config]), PACKAGE)
    return st.components.v2.component(f"{NAMESPACE}.{name}", html=html, css=css, js=js)
