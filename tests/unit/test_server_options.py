"""Options and internal names of Streamlit that we rely on. If one of these fails after an upgrade, look there first."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path

import streamlit as st
from streamlit import config
from streamlit.components.v2.component_manager import BidiComponentManager
from streamlit.components.v2.manifest_scanner import ComponentConfig, ComponentManifest

from app.web.server import streamlit_options
from app.widgets.base.problems import plain

ROOT = Path(__file__).resolve().parents[2]


def test_every_option_still_exists() -> None:
    for name in streamlit_options("127.0.0.1", 8501):
        assert name in config._config_options_template, name


def test_options_are_in_force() -> None:
    """In a process of its own: options are global to it."""
    code = (
        "import json\n"
        "from streamlit import config\n"
        "from streamlit.web import bootstrap\n"
        "from app.web.server import streamlit_options\n"
        "wanted = streamlit_options('127.0.0.1', 8501)\n"
        "bootstrap.load_config_options(wanted)\n"
        "print(json.dumps({name: config.get_option(name) for name in wanted}))\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True)
    found = json.loads(ran.stdout)
    assert found["runner.postScriptGC"] is False
    assert found["runner.magicEnabled"] is False
    assert found["browser.gatherUsageStats"] is False
    assert found["server.enableXsrfProtection"] is True
    assert found["server.enableCORS"] is True
    assert found["client.toolbarMode"] == "viewer"
    assert found["server.trustedUserHeaders"] == {
        "x-rankloop-id": "id",
        "x-rankloop-role": "role",
        "x-rankloop-session": "session",
    }


def test_components_can_still_be_registered_by_hand() -> None:
    manager = BidiComponentManager()
    names = ["ranker", "account"]
    manifest = ComponentManifest("rankloop", "1", [ComponentConfig(name=name, asset_dir="frontend") for name in names])
    manager.register_from_manifest(manifest, ROOT / "app")
    for name in names:
        root = manager.get_component_asset_root(f"rankloop.{name}")
        assert root == ROOT / "app" / "frontend"
        assert (root / f"{name}.js").is_file()
        assert (root / f"{name}.css").is_file()
    assert "key" in inspect.signature(st.fragment).parameters


def test_the_page_still_says_whether_it_is_connected() -> None:
    """app/frontend/account.js waits for this attribute to come back to life after the server was away."""
    bundles = (Path(st.__file__).parent / "static" / "static" / "js").glob("index.*.js")
    assert any("data-test-connection-state" in bundle.read_text(encoding="utf-8") for bundle in bundles)


def test_plain_escapes_what_markdown_reads() -> None:
    assert plain("a *b* [c](d) $e$ :red[f] 1. <g>") == r"a \*b\* \[c\]\(d\) \$e\$ \:red\[f\] 1\. \<g\>"
    assert plain("Größe 3 mm, 漢字") == "Größe 3 mm, 漢字".replace(",", "\\,")
