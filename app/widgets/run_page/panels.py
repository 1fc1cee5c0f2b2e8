"""What the page of one run shows, a row for each panel: its name, what draws it, and for which runs.

A new kind of run adds rows here, and no branch anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from app.actions.context import home, person, store
from app.actions.runs import queue_run
from app.widgets.base.page import ShownErrors, go_to
from app.widgets.forms.score_form import score_form
from app.widgets.policies.best_policy import show_best
from app.widgets.policies.frontier import is_evaluated, show_frontier
from app.widgets.policies.policies_table import show_baselines
from app.widgets.policies.start_and_policy import start_and_policy
from app.widgets.policies.token_inspector import has_rollouts, token_inspector
from app.widgets.rewards.report import report_path, show_report
from app.widgets.rewards.scores import show_scores
from app.widgets.runs.check import show_check
from app.widgets.runs.details import show_config, show_events, show_log, show_results, show_samples
from app.widgets.runs.lineage import show_lineage
from app.widgets.runs.overlay import show_curves
from app.widgets.runs.status import look
from data.fields import from_dict
from data.records import Run, RunKind, RunStatus
from data.runs.best_policy import best_name
from training.launch.find import best_policies, trained_models
from training.launch.kinds import CONFIGS, WRITERS, settings

KEY = "runs"
Kinds = frozenset[RunKind]
ALL: Kinds = frozenset(RunKind)


def _always(_run: Run) -> bool:
    return True


def has_succeeded(run: Run) -> bool:
    return run.status is RunStatus.SUCCEEDED


@dataclass(frozen=True)
class Panel:
    """A part of the page. `when`: what has to hold of a run of these kinds."""

    name: str
    show: Callable[[Run], None]
    kinds: Kinds = ALL
    when: Callable[[Run], bool] = _always


def panels_of(rows: Sequence[Panel], run: Run) -> dict[str, Panel]:
    """A run's panels, by their names, in the order of the rows."""
    return {row.name: row for row in rows if run.kind in row.kinds and row.when(run)}


def _is_active(run: Run) -> bool:
    return not look(run.id).run.status.is_final


def _check(run: Run) -> None:
    show_check(run.id, f"{KEY}.check.{run.id}")


def _curves(run: Run) -> None:
    show_curves(run, f"{KEY}.curves.{run.id}")
    if is_evaluated(run):
        show_frontier(run)


def _rollouts(run: Run) -> None:
    start_and_policy(run, f"{KEY}.start.{run.id}", is_active=_is_active(run))
    st.header("Rollouts", anchor=False)
    _samples(run)


def _samples(run: Run) -> None:
    show_samples(run.id, f"{KEY}.samples.{run.id}", is_active=_is_active(run))


def _log(run: Run) -> None:
    show_log(run.id, is_active=_is_active(run))


def _download_model(run: Run) -> None:
    address = f"/download/run/{run.id}/model"
    st.link_button("Download model", address, icon=":material/download:", key=f"{KEY}.model.{run.id}")


def _has_model(run: Run) -> bool:
    return (home().run_folder(run.id) / "model").is_dir()


def _download(name: str, label: str) -> Panel:
    def show(run: Run) -> None:
        address = f"/download/run/{run.id}/{name}"
        st.link_button(label, address, icon=":material/download:", key=f"{KEY}.{name}.{run.id}")

    return Panel(label, show, when=lambda run: (home().run_folder(run.id) / name).is_file())


def _to_ppo(run: Run) -> None:
    if st.button("Train a policy", type="primary", key=f"{KEY}.to_ppo"):
        go_to("train", kind=RunKind.PPO.value, reward=run.id, snapshot=run.snapshot_id or "")


def _to_compare(run: Run) -> None:
    if st.button("Compare", type="primary", icon=":material/compare:", key=f"{KEY}.to_compare"):
        go_to("compare", model_b=f"run:{run.id}", reward=run.reward_run_id or "")


def _to_baselines(run: Run) -> None:
    if st.button("Baselines", icon=":material/table_chart:", key=f"{KEY}.to_baselines"):
        _start_baselines(run)


def _to_prompts(_run: Run) -> None:
    if st.button("See responses", type="primary", key=f"{KEY}.to_prompts"):
        go_to("prompts")


def _start_baselines(run: Run) -> None:
    """Queue the table of this policy and of all others that learnt from the same snapshot; of those that kept a best
    policy which is not their last one, of both."""
    with store().read() as tx:
        others = [each for each in trained_models(tx, run.project_id) if each.snapshot_id == run.snapshot_id]
        best = {each.id: iteration for each, iteration in best_policies(tx, run.project_id or "")}
    names = " ".join(
        f"run:{each.id} {best_name(each.id)}"
        if best.get(each.id) not in (None, (each.result or {}).get("iterations"))
        else f"run:{each.id}"
        for each in others
    )
    asked = settings(run)
    alike = {name: asked[name] for name in ("model", "sampling.max_new_tokens", "second_reward_run") if name in asked}
    config: Any = from_dict(CONFIGS[RunKind.BASELINES], alike | {"models": names})
    table = None
    with ShownErrors():
        links = {"snapshot_id": run.snapshot_id, "reward_run_id": run.reward_run_id}
        table = queue_run(store(), person(), RunKind.BASELINES, config, **links)
    if table is not None:
        go_to("runs", run=table.id)


# Beside the title of a run that has succeeded: what can be done with it.
NEXT_STEPS = (
    Panel("Download model", _download_model, when=_has_model),
    _download("report.json", "Download report"),
    _download("scores.jsonl", "Download scores"),
    Panel("Train a policy", _to_ppo, kinds=frozenset({RunKind.REWARD})),
    Panel("Compare", _to_compare, kinds=frozenset(WRITERS)),
    Panel("Baselines", _to_baselines, when=is_evaluated),
    Panel("See responses", _to_prompts, kinds=frozenset({RunKind.SAMPLE})),
)

# Above the tabs: what came of it.
RESULTS = (
    Panel("Baselines", show_baselines, kinds=frozenset({RunKind.BASELINES})),
    Panel("Check", _check, kinds=frozenset({RunKind.CHECK})),
    Panel("Result", show_results, kinds=ALL - {RunKind.BASELINES, RunKind.CHECK}),
    Panel("Best policy", show_best, kinds=frozenset({RunKind.PPO})),
    Panel("Scores", show_scores, kinds=frozenset({RunKind.SCORE}), when=has_succeeded),
)

TABS = (
    Panel("Report", show_report, when=lambda run: report_path(run) is not None),
    Panel("Curves", _curves),
    Panel("Samples", _rollouts, kinds=frozenset({RunKind.PPO})),
    Panel("Samples", _samples, kinds=ALL - {RunKind.PPO}),
    Panel("Tokens", token_inspector, kinds=frozenset({RunKind.PPO}), when=has_rollouts),
    Panel("Events", lambda run: show_events(run.id)),
    Panel("Configuration", show_config),
    Panel("Lineage", show_lineage),
    Panel("Log", _log),
    Panel("Score a file", score_form, kinds=frozenset({RunKind.REWARD}), when=has_succeeded),
)
