"""The words that keep running: `serve`, `worker`, and `demo`."""

from __future__ import annotations

import argparse
import logging
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

from app.commands.common import Context, Outcome, add_word
from data.people import has_admin
from data.readable import check_roots

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
    from app.server import serve as run_server

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
    from training.launch import STARTER_VARIABLE, Worker

    logging.basicConfig(format="%(asctime)s %(message)s", stream=sys.stderr)
    logging.getLogger("training").setLevel(logging.INFO)
    starter = os.environ.get(STARTER_VARIABLE)
    worker = Worker(context.store, context.home, starter=int(starter) if starter else None)
    before = {number: signal.signal(number, worker.stop) for number in (signal.SIGINT, signal.SIGTERM)}
    is_watched = sys.stdin is not None and sys.stdin.isatty()  # not when `serve` or `--wait` started it
    if is_watched:
        context.warn(f"working for {context.home.root}; Ctrl-C ends it")
    try:
        done = worker.run(once=arguments.once)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if is_watched:
        context.warn(f"{done} {'run' if done == 1 else 'runs'} done")
    return Outcome({"runs_done": done})


def demo(arguments: argparse.Namespace, context: Context) -> Outcome:
    from app.demo_run import run_demo

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
