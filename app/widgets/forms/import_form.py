"""Import from a file: upload, look at what would happen, then do it."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from app.actions.context import store
from app.actions.runs import place_of_upload
from app.widgets.base.page import ShownErrors, nonce, renew_nonce, say_after_rerun
from app.widgets.base.problems import plain
from app.words.values import count
from data.files.rows import SUFFIXES, Row, read_rows
from data.hygiene import BADGES
from data.records import Person, Project
from labeling.files.import_report import ImportReport
from labeling.files.imports import import_prompts, import_rankings, import_responses
from labeling.files.parse import PROMPT_FIELDS
from labeling.files.readers import READERS

KEY = "prompts.import"
TAB = "prompts.tab"
BROWSE, IMPORT, SAMPLE, SELECT = "Browse", "Import", "Sample responses", "What comes next"  # the tabs of its page
KINDS = {"prompts": "Prompts", "responses": "Finished responses", "rankings": "Finished rankings"}
NOTES = {
    "prompts": (
        "One prompt a row.",
        '{"prompt": "Name three rivers."}\n{"messages": [{"role": "user", "content": "Hi"}]}',
    ),
    "responses": (
        "A prompt with two or more responses becomes a task to rank.",
        '{"prompt": "Name three rivers.", "responses": ["Rhine, Nile, Amazon", "I can\'t."]}',
    ),
    "rankings": (
        "Rank 1 is best, equal ranks are a tie. Nobody is asked to rank these again.",
        '{"prompt": "Name three rivers.", "responses": ["Rhine, Nile, Amazon", "I can\'t."], "ranks": [1, 2]}',
    ),
}
READER_WORDS = {
    "native": "rankloop's own",
    "trl": "TRL: prompt, chosen, rejected",
    "hh": "Anthropic HH: two transcripts",
    "oasst": "Open-Assistant trees",
    "fastchat": "FastChat battles",
    "label-studio": "Label Studio",
    "argilla": "Argilla",
}
COUNT_WORDS = {
    "new": "New prompts",
    "known": "Known already",
    "tasks": "New tasks",
    "responses": "New responses",
    "rankings": "New rankings",
    "skips": "New skips",
    "doubles": "Doubles left out",
    "repaired": "Rows with broken characters",
    "rows_without_ranking": "Rows without a ranking",
    "unacceptable": "Answers that no response is acceptable",
    "gold": "New gold tasks",
    "gold_kept": "Answers to gold that is kept as it is here",
    "side_kept": "Rows whose prompt keeps its side",
    "meta_kept": "Rows whose prompt keeps its further fields",
    "extra": "Answers beyond those wanted there",
    "overruled": "Answers overruled there",
    "decisions": "Decisions taken in as answers",
    **{f"dropped_{name}": f"Responses dropped: {words}" for name, words in BADGES.items()},
    **{f"badge_{name}": f"Responses with the badge: {words}" for name, words in BADGES.items()},
}


def import_form(project: Project, who: Person) -> None:
    """Draw the import of prompts, finished responses or finished rankings into a project."""
    place_of_result = st.container()
    kind = st.segmented_control(
        "What is in the file?",
        list(KINDS),
        default="prompts",
        required=True,
        format_func=KINDS.__getitem__,
        key=f"{KEY}.kind",
    )
    about, example = NOTES[kind]
    suffixes = sorted(suffix.removeprefix(".") for suffix in SUFFIXES)
    uploaded = st.file_uploader("File", suffixes, key=f"{KEY}.file.{nonce(KEY)}", help="UTF-8, up to 200 MB")
    if uploaded is None:
        if (done := st.session_state.get(f"{KEY}.done")) is not None:
            with place_of_result:
                _show_done(done)
        st.caption(about)
        st.code(example, language=None)
        return
    path = _saved(uploaded)
    options: dict[str, Any] = {}
    with ShownErrors():
        if kind == "prompts":
            options["prompt_field"] = _choose_field(path, uploaded.name)
        if kind == "rankings":
            options["format_name"] = st.selectbox(
                "Format", list(READERS), format_func=lambda name: READER_WORDS.get(name, name), key=f"{KEY}.format"
            )
        _rehearse_and_import(project, who, kind, path, uploaded.name, options)


def open_tab(name: str) -> None:
    """Show another tab of the page: for a button's `on_click`."""
    st.session_state[TAB] = name


def _saved(uploaded: Any) -> Path:
    """The upload as a file under a name of our own, written once."""
    known = st.session_state.get(f"{KEY}.upload")
    if known is not None and known[0] == uploaded.file_id:
        return Path(known[1])
    if known is not None:
        Path(known[1]).unlink(missing_ok=True)
    path = place_of_upload(uploaded.name, time.time())
    path.write_bytes(uploaded.getbuffer())
    st.session_state[f"{KEY}.upload"] = (uploaded.file_id, str(path))
    return path


def _choose_field(path: Path, name: str) -> str | None:
    """Which field holds the prompt: of the first row's, or one of the usual names."""
    first = next((row for row in read_rows(path, name) if isinstance(row, Row)), None)
    fields = list(first.value) if first is not None else []
    usual = f"found by its name: {', '.join(PROMPT_FIELDS)}"
    chosen = st.selectbox(
        "Field with the prompt", ["", *fields], format_func=lambda each: each or usual, key=f"{KEY}.field"
    )
    return chosen or None


def _rehearse_and_import(
    project: Project, who: Person, kind: str, path: Path, name: str, options: dict[str, Any]
) -> None:
    calls = {"prompts": import_prompts, "responses": import_responses, "rankings": import_rankings}
    do = partial(calls[kind], store(), who, project.id, path, name=name, **options)
    signature = (project.id, kind, str(path), *options.values())
    known = st.session_state.get(f"{KEY}.rehearsed")
    if known is None or known[0] != signature:
        with st.spinner("Reading the file"):
            known = (signature, do(dry_run=True))
        st.session_state[f"{KEY}.rehearsed"] = known
    report: ImportReport = known[1]
    st.header("What the import would do", anchor=False)
    show_report(report)
    if (problem := report.why_nothing) is not None:
        st.error(plain(problem), icon=":material/error:")
    elif not report.n_in:
        st.info("Everything in this file that can be used is known already.")
    elif st.button("Import", type="primary", icon=":material/upload_file:", key=f"{KEY}.go.{nonce(KEY)}"):
        with st.spinner("Importing"):
            done = do(dry_run=False)
        path.unlink(missing_ok=True)
        for each in ("upload", "rehearsed"):
            st.session_state.pop(f"{KEY}.{each}", None)
        st.session_state[f"{KEY}.done"] = done
        renew_nonce(KEY)
        say_after_rerun("Imported")
        st.rerun()


def _show_done(report: ImportReport) -> None:
    parts = [f"{number:,} {COUNT_WORDS[name].lower()}" for name, number in report.counts.items() if number]
    refused = f"; {count(report.n_problems, 'row')} refused" if report.n_problems else ""
    st.success(f"Imported {plain(report.file)}: {', '.join(parts)}{refused}.", icon=":material/check_circle:")
    if report.counts["new"]:
        st.button(
            "Sample responses", icon=":material/casino:", key=f"{KEY}.to_sample", on_click=open_tab, args=(SAMPLE,)
        )
    if report.n_problems:
        _show_problems(report)


def show_report(report: ImportReport) -> None:
    """Every count, every refused line with its reason, and three examples."""
    with st.grid("auto", min_column_width=140):
        st.metric("Rows read", f"{report.n_rows:,}", border=True)
        for name, number in report.counts.items():
            st.metric(COUNT_WORDS[name], f"{number:,}", border=True)
        st.metric("Refused", f"{report.n_problems:,}", border=True)
    if report.n_problems:
        _show_problems(report)
    _show_fields(report)
    if report.examples:
        st.caption("The first of them, as they would be stored")
        for place, example in enumerate(report.examples):
            with st.container(border=True, key=f"{KEY}.example.{place}"):
                st.text(example)


def _show_fields(report: ImportReport) -> None:
    """What each field of the file is used for."""
    if not (rows := report.fields.as_rows()):
        return
    st.caption("What becomes of each field, with the rows that have something there")
    st.dataframe(
        pd.DataFrame(rows),
        hide_index=True,
        key=f"{KEY}.fields.{report.dry_run}",
        column_config={
            "field": "Field",
            "use": "Used for",
            "rows": st.column_config.NumberColumn("Rows", width="small"),
        },
        alt="What each field of the file is used for",
    )


def _show_problems(report: ImportReport) -> None:
    hidden = report.n_problems - len(report.problems)
    st.caption(f"Refused rows{f', the first {len(report.problems)} of {report.n_problems:,}' if hidden else ''}")
    rows = sorted((problem.line, problem.message) for problem in report.problems)
    table = pd.DataFrame(rows, columns=["line", "problem"])
    st.dataframe(
        table,
        hide_index=True,
        key=f"{KEY}.problems.{report.dry_run}",
        column_config={"line": st.column_config.NumberColumn("Line", width="small"), "problem": "What is wrong"},
        alt="Rows that were refused, with the reason",
    )
