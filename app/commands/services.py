"""The words that keep running: `serve`, `worker`, and `demo`."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from app.commands.base.common import Context, Outcome, add_word
from data.files.readable import check_roots
from data.labels.people import has_admin

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 8501


def add_words(words: Any) -> None:
    parser = add_word(words, "serve", serve, "start the web app and one worker; Ctrl-C ends both")
    parser.add_argument("--host", default=DEFAULT_HOST, metavar="H", help=f"address to listen on ({DEFAULT_HOST})")
    parser.add_argument("--port", type=_port, default=DEFAULT_PORT, metavar="N", help=f"port ({DEFAULT_PORT})")
    parser.add_argument("--no-worker", action="store_true", help="the web app alone; workers run elsewhere")
    help = "a folder in which files and models may be named in the web app, beside the home folder; may be repeated"
    parser.add_argument("--root", action="append", default=[], metavar="DIR", help=help)
    help = "start a worker alone, such as for a GPU machine; Ctrl-C stops its run at the next safe place"
    parser = add_word(words, "worker", work, help)
    parser.add_argument("--once", action="store_true", help="end when nothing is queued")
    help = "run the whole loop with simulated annotators, on a laptop's CPU"
    parser = add_word(words, "demo", demo, help)
    parser.add_argument("--minutes", type=_minutes, default=10.0, metavar="N", help="about how long (default 10)")
    parser.add_argument("--prompts", type=Path, metavar="FILE", help="prompts in the place of the package's own")
    parser.add_argument("--model", default="demo", metavar="M", help="a folder or hub id in the demo model's place")


def serve(arguments: argparse.Namespace, context: Context) -> Outcome:
    from app.web.server import serve as run_server

    with context.store.read() as tx:
        n_links = 1 if has_admin(tx) else 2  # the address; and the link that makes the first admin
    links: list[str] = []

    def announce(line: str) -> None:
        context.say(line)
        links.extend(re.findall(r"https?://\S+", line))
        if len(links) == n_links:
            context.emit(dict(zip(("address", "setup"), links, strict=False)) | {"home": str(context.home.root)})

    run_server(
        context.home, context.store_url, arguments.port,
        with_worker=not arguments.no_worker, host=arguments.host, roots=check_roots(arguments.root), announce=announce,
    )  # fmt: skip
    return Outcome(None)


def work(arguments: argparse.Namespace, context: Context) -> Outcome:
    from training.launch.process import become_worker

    context.store.close()  # it could be opened, else that was said here, as ever
    become_worker(context.home, context.store_url, once=arguments.once, as_json=context.json)


def demo(arguments: argparse.Namespace, context: Context) -> Outcome:
    from app.demo.run import run_demo

    result = run_demo(
        context.home,
        context.store_url,
        arguments.minutes,
        announce=context.say,
        prompts=arguments.prompts,
        model=arguments.model,
    )
    return Outcome(result)


def _port(word: str) -> int:
    if not word.isdecimal() or not 0 <= int(word) <= 65_535:
        raise argparse.ArgumentTypeError(f"{word!r} is not a port; a number up to 65535 is needed (0: any free one)")
    return int(word)


def _minutes(word: str) -> float:
    try:
        minutes = float(word)
    except ValueError:
        minutes = 0.0
    if not 0 < minutes < 10_000:
        raise argparse.ArgumentTypeError(f"{word!r}: a number of minutes above 0 is needed")
    return minutes
