"""Prompts and responses of a project: look at them, bring them in from a file, sample responses."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from app.actions.context import require, store
from app.actions.runs import queue_run
from app.widgets.base.models import model_name, model_suggestions
from app.widgets.base.page import (
    ShownErrors,
    empty_state,
    go_to,
    need_project,
    nonce,
    page_head,
    renew_nonce,
    say_after_rerun,
)
from app.widgets.base.problems import plain
from app.widgets.forms.config_form import config_form
from app.widgets.forms.import_form import BROWSE, IMPORT, SAMPLE, SELECT, TAB, import_form, open_tab
from app.widgets.labels.gold import gold_line
from app.widgets.labels.selection_panel import selection_panel
from app.widgets.runs.lineage import show_made_from_prompt
from app.widgets.runs.status import run_status
from app.words.values import count, first_line, run_name
from data.fields import from_dict
from data.labels.projects import project_counts
from data.labels.prompts import count_listed, get_prompt, list_prompts
from data.labels.tasks import holdings_of_prompts, models_of_project, responses_of_prompt, tasks_of_prompt
from data.records import Message, Person, Project, Response, Role, RunKind, Split
from data.runs.state import list_runs
from training.launch.config import SampleConfig

PAGE_SIZE = 12
FORM = "prompts.sample"


def render() -> None:
    who = require(Role.RESEARCHER)
    page_head("Prompts and responses")
    project = need_project()
    if project is None:
        return
    with store().read() as tx:
        counts = project_counts(tx, project.id)
    tabs = st.tabs([BROWSE, IMPORT, SAMPLE, SELECT], key=TAB, bind="query-params")
    with tabs[0]:
        if tabs[0].open:
            _browse(project, counts)
    with tabs[1]:
        if tabs[1].open:
            import_form(project, who)
    with tabs[2]:
        if tabs[2].open:
            _sample(project, counts, who)
    with tabs[3]:
        if tabs[3].open:
            selection_panel(project, who)


def _browse(project: Project, counts: dict[str, int]) -> None:
    if not counts["prompts"]:
        text = "Import a file with one prompt a row: JSONL, CSV, Parquet."
        with empty_state("inbox", "No prompts yet", text, "prompts.empty"):
            st.button("Import prompts", type="primary", key="prompts.to_import", on_click=open_tab, args=(IMPORT,))
        return
    if not counts["responses"]:
        st.button(
            "Sample responses", icon=":material/casino:", key="prompts.to_sample", on_click=open_tab, args=(SAMPLE,)
        )
    filters = _filters()
    with store().read() as tx:
        n_found = count_listed(tx, project.id, **filters)
    st.caption(f"{count(n_found, 'prompt')} · {counts['responses']:,} responses in {count(counts['tasks'], 'task')}")
    slot = st.container()
    n_pages = max(1, -(-n_found // PAGE_SIZE))
    page = 1
    if n_pages > 1:
        with st.container(horizontal_alignment="center"):
            page = st.pagination(n_pages, key=f"prompts.page.{project.id}.{filters}")
    with slot:
        chosen = _table(project, filters, page)
    if chosen is not None:
        _details(project, chosen)


def _filters() -> dict[str, Any]:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        search = st.text_input("Find", placeholder="text of a prompt", key="prompts.search", icon=":material/search:")
        side = st.segmented_control("Side", ["all", *Split], default="all", required=True, key="prompts.side")
        without_task = st.toggle("Nothing to rank yet", key="prompts.without_task")
    split = None if side == "all" else Split(side)
    return {"search": (search or "").strip(), "split": split, "without_task": without_task}


def _table(project: Project, filters: dict[str, Any], page: int) -> str | None:
    """One page of the table; returns the prompt whose row was chosen."""
    with store().read() as tx:
        prompts = list_prompts(tx, project.id, limit=PAGE_SIZE, offset=PAGE_SIZE * (page - 1), **filters)
        holdings = holdings_of_prompts(tx, [prompt.id for prompt in prompts])
    rows = [
        {
            "prompt": first_line(prompt.messages),
            "turns": len(prompt.messages),
            "side": prompt.split.value if prompt.split else "",
            "responses": holdings[prompt.id][0],
            "tasks": holdings[prompt.id][1],
        }
        for prompt in prompts
    ]
    event = st.dataframe(
        pd.DataFrame(rows, columns=["prompt", "turns", "side", "responses", "tasks"]),
        hide_index=True,
        on_select="rerun",
        selection_mode=("single-row", "single-cell"),
        height="content",
        key=f"prompts.table.{project.id}.{page}.{filters}",
        column_config={
            "prompt": st.column_config.TextColumn("Prompt", width="large"),
            "turns": st.column_config.NumberColumn("Messages", width="small"),
            "side": st.column_config.TextColumn(
                "Side", width="small", help="Named by the import; else a snapshot draws"
            ),
            "responses": st.column_config.NumberColumn("Responses", width="small"),
            "tasks": st.column_config.NumberColumn("Tasks", width="small"),
        },
        alt="Prompts of the project",
    )
    chosen = [*event["selection"]["rows"], *(row for row, _ in event["selection"]["cells"])]
    if chosen and chosen[0] < len(prompts):
        st.query_params["prompt"] = prompts[chosen[0]].id
    return st.query_params.get("prompt")


def _details(project: Project, prompt_id: str) -> None:
    """One prompt with all its responses. Texts are shown as they are, never as Markdown."""
    with ShownErrors():
        with store().read() as tx:
            prompt = get_prompt(tx, prompt_id)
            if prompt.project_id != project.id:  # the address still names a prompt of the project before
                return
            tasks = tasks_of_prompt(tx, prompt.id)
            responses = responses_of_prompt(tx, prompt.id)
        st.header("Prompt", anchor=False)
        for message in prompt.messages:
            _message(message)
        show_made_from_prompt(project.id, prompt.id)
        in_tasks = {response.id for task in tasks for response in task.responses}
        for number, task in enumerate(tasks, start=1):
            st.header(f"Task {number}: {len(task.responses)} responses", anchor=False)
            gold_line(task)
            _responses(task.responses)
        if loose := tuple(response for response in responses if response.id not in in_tasks):
            st.header("Responses outside of tasks", anchor=False)
            _responses(loose)
        if prompt.meta:
            with st.expander("What else the file said"):
                st.json(prompt.meta)


def _message(message: Message) -> None:
    with st.container(border=True):
        st.caption(message["role"])
        st.text(message["content"])


def _responses(responses: tuple[Response, ...]) -> None:
    with st.grid(2, min_column_width=320):
        for response in responses:
            with st.container(border=True, key=f"prompts.response.{response.id}"):
                st.caption(plain(response.model) or "model not named")
                st.text(response.text)
                with st.expander("Provenance"):
                    st.json({"id": response.id, "model": response.model, **response.provenance})


def _sample(project: Project, counts: dict[str, int], who: Person) -> None:
    if not counts["prompts"]:
        st.info("Import prompts first: each of them then gets its responses.")
        return
    with store().read() as tx:
        runs = list_runs(tx, project_id=project.id, kinds=(RunKind.SAMPLE,), limit=1)
        found = models_of_project(tx, project.id)
        own = model_name(tx, found[0][0]) if found else "demo, as it has none yet"
        models = {"": f"the model of the project's responses: {own}"} | model_suggestions(tx, project.id)
    if runs:
        with st.container(border=True):
            if st.button(run_name(runs[0]), type="tertiary", icon=":material/monitoring:", key="prompts.to_run"):
                go_to("runs", run=runs[0].id)
            run_status(runs[0].id, "prompts.status")
    st.caption(f"{SampleConfig.__doc__} The demo model needs no account; it is fetched the first time it is needed.")
    key = nonce(FORM)
    with st.form(FORM):
        values = config_form(
            SampleConfig,
            f"{FORM}.{project.id}",
            first=("model", "k", "sampling.max_new_tokens", "sampling.temperature", "split", "limit"),
            initial={"k": project.k},
            suggestions={"model": models},
        )
        is_sent = st.form_submit_button("Sample responses", type="primary", key=f"{FORM}.start.{key}")
    if is_sent:
        run = None
        with ShownErrors():
            config = from_dict(SampleConfig, values)
            run = queue_run(store(), who, RunKind.SAMPLE, config, project_id=project.id, nonce=key)
        if run is not None:
            renew_nonce(FORM)
            say_after_rerun(f"{run_name(run)} queued")
            st.rerun()


if __name__ == "__main__":
    render()
