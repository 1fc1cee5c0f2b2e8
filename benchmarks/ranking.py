"""How long an annotator waits for the ranking page, measured in Chromium.

    python benchmarks/ranking.py [--quick] [--json]

key_ms                   a rank key to the frame that shows the rank
submit_ms                Enter to the frame that shows the next prompt
key_ms_server_500ms      the same two while the server takes 500 ms for everything that the page sends
submit_ms_server_500ms

Four responses of real length per prompt. A frame counts when it has been made: the time from the key's own stamp to
the first message after the next animation frame in which the change can be seen; medians are shown. No peer stands
beside. Needs a Chromium (named in CHROMIUM, or on the path). `--quick`: fewer prompts.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import json
import os
import platform
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from playwright.sync_api import Page, sync_playwright

from app.web import server
from app.web.gate import cookie_name
from data.files.paths import open_home
from data.labels.people import add_person, open_session
from data.labels.projects import create_project
from data.labels.prompts import prompt_id_of
from data.labels.tasks import add_task
from data.records import NewPrompt, NewResponse, Role
from data.store import open_store

K = 4
SLOW_S = 0.5
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
]
SENTENCE = "The answer depends on what is asked for, and on how much of it is known to whoever asks. "

# Watches keys from the window, before the page's own listeners: notes for each how long it took until the change that
# the key was pressed for could be seen.
WATCH = """() => {
    window.waits = { key: [], submit: [] };
    const all = [...document.querySelectorAll("*")];
    const root = all.find((each) => each.shadowRoot?.querySelector(".ranker")).shadowRoot;
    const look = (what) => root.querySelector(what)?.innerHTML ?? "";
    window.addEventListener("keydown", (event) => {
        const [kind, what] = event.key === "Enter" ? ["submit", ".prompt"] : ["key", ".order"];
        const before = look(what);
        const frame = () => requestAnimationFrame(() => {
            const channel = new MessageChannel();
            channel.port1.onmessage = () => {
                if (look(what) === before) frame();
                else window.waits[kind].push(performance.now() - event.timeStamp);
            };
            channel.port2.postMessage(null);
        });
        frame();
    }, true);
}"""


class SlowServer:
    """ASGI around the app: what a page sends over the websocket arrives half a second later."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def receive_late() -> Any:
            message = await receive()
            if message["type"] == "websocket.receive":
                await asyncio.sleep(SLOW_S)
            return message

        await self.app(scope, receive_late if scope["type"] == "websocket" else receive, send)


def serve(folder: Path, port: int, slow: bool) -> None:
    """The web app, as `rankloop serve` starts it; runs until it is told to end."""
    if slow:
        make = server.web_app
        server.web_app = lambda *args, **kwargs: SlowServer(make(*args, **kwargs))  # type: ignore[assignment]
    home = open_home(folder)
    server.serve(home, home.store_url, port, with_worker=False, announce=lambda _line: None)


def fill(folder: Path, n_prompts: int) -> tuple[str, str]:
    """A project with prompts to rank and somebody who is signed in; the project's id and the session's token."""
    store = open_store(open_home(folder).store_url)
    with store.begin() as tx:
        person = add_person(tx, "annotator", Role.ANNOTATOR)
        project = create_project(tx, "benchmark", k=K)
        for number in range(n_prompts):
            prompt = NewPrompt(({"role": "user", "content": f"Question {number}. {SENTENCE * 3}"},))
            responses = [NewResponse(f"{place}. {SENTENCE * (6 + 2 * place)}") for place in range(K)]
            add_task(tx, project.id, prompt_id_of(tx, project.id, prompt), responses, slots=1)
        token = open_session(tx, person.id)
    store.close()
    return project.id, token


def measure(n_prompts: int, slow: bool) -> dict[str, list[float]]:
    """Rank so many prompts by keyboard, one a second (with a slow server one in four), and return what was waited."""
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), free_port()
        project, token = fill(folder, n_prompts + 1)
        command = [sys.executable, __file__, "--serve", name, str(port), *(["--slow"] if slow else [])]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for(f"http://localhost:{port}/_stcore/health", process)
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
                context = browser.new_context(viewport={"width": 1280, "height": 900})
                url = f"http://localhost:{port}"
                context.add_cookies([{"name": cookie_name(port), "value": token, "url": url}])
                page = context.new_page()
                page.goto(f"{url}/rank?project={project}")
                waits = rank(page, n_prompts, pause_s=4 if slow else 1)
                browser.close()
            return waits
        finally:
            process.terminate()
            process.wait(30)


def rank(page: Page, n_prompts: int, pause_s: float) -> dict[str, list[float]]:
    page.locator(".ranker .card").first.wait_for(timeout=60_000)
    page.wait_for_timeout(1000)
    page.evaluate(WATCH)
    for _ in range(n_prompts):
        for place in range(K):
            page.keyboard.press(str(place + 1))
            page.wait_for_timeout(pause_s * 1000 / (K + 1))
        page.keyboard.press("Enter")
        page.wait_for_timeout(pause_s * 1000 / (K + 1))
    page.wait_for_timeout(500)
    waits: dict[str, list[float]] = page.evaluate("window.waits")
    if len(waits["submit"]) != n_prompts or len(waits["key"]) != n_prompts * K:
        raise SystemExit(
            f"{len(waits['key'])} keys and {len(waits['submit'])} submits of {n_prompts} prompts were seen"
        )
    return waits


def wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the server does not start")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def chromium() -> str:
    found = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if not found:
        raise SystemExit("no Chromium: install it, or name it in CHROMIUM")
    return found


def row(name: str, waits: list[float]) -> dict[str, Any]:
    ordered = sorted(round(each, 1) for each in waits)
    p95 = ordered[min(len(ordered) - 1, round(0.95 * len(ordered)))]
    shown = {
        "case": name,
        "ours": round(statistics.median(ordered), 1),
        "peer": None,
        "ratio": None,
        "unit": "ms, median",
    }
    return shown | {"p95": p95, "runs": ordered}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer prompts")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.add_argument("--serve", nargs=2, metavar=("HOME", "PORT"), help=argparse.SUPPRESS)
    parser.add_argument("--slow", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(Path(arguments.serve[0]), int(arguments.serve[1]), arguments.slow)
        return
    rows = []
    for slow, ending in ((False, ""), (True, "_server_500ms")):
        waits = measure(5 if arguments.quick else 30, slow)
        rows += [row(f"key_ms{ending}", waits["key"]), row(f"submit_ms{ending}", waits["submit"])]
    version = subprocess.run([chromium(), "--version"], capture_output=True, text=True, check=False).stdout.strip()
    found = {
        "benchmark": "ranking",
        "machine": {"system": platform.platform(), "cores": os.cpu_count()},
        "versions": {
            "python": platform.python_version(),
            "streamlit": importlib.metadata.version("streamlit"),
            "chromium": version,
        },
        "rows": rows,
    }
    if arguments.json:
        print(json.dumps(found))
        return
    for each in rows:
        rest = f"95 % within {each['p95']:.1f} ms, {len(each['runs'])} times"
        print(f"{each['case']:<24} {each['ours']:>6.1f} ms   ({rest})")


if __name__ == "__main__":
    main()
