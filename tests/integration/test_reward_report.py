"""The report of a reward run and the instant reward model, from a real run on a tiny model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import factories as make
import numpy as np
import pytest
import torch
from rig import Rig

from data.files.features import about_features, add_features, feature_folders, load_features, text_key
from data.files.snapshots import read_groups
from data.labels.roles import OPERATOR
from data.records import Run, RunKind, Split
from labeling.snapshot.freeze import SnapshotConfig, freeze_snapshot
from training.lm.models import Machine, find_model, load_encoder, load_language_model
from training.lm.scorer import Scorer
from training.reward.features_run import Middle

pytestmark = [
    pytest.mark.float64,
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:fan_in_fan_out:UserWarning"),
]
CPU = Machine(torch.device("cpu"), is_bf16=False)
WORDS = {"epochs": 3, "learning_rate": 1e-2, "batch_prompts": 8}


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("report"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def run(rig: Rig) -> Run:
    """Sixty prompts, of which every third was ranked by a second person, who has the two best the other way round."""
    project = rig.project(n_prompts=60)
    person = make.make_person(rig.store)
    with rig.store.read() as tx:
        from data.labels.rankings import current_rankings

        first = list(current_rankings(tx, project.id))
    for ranking, _ in first[::3]:
        ranks = list(ranking.ranks or ())
        swapped = {1: 2, 2: 1}
        make.make_ranking(rig.store, task_of(rig, ranking.task_id), person, [swapped.get(rank, rank) for rank in ranks])
    snapshot = freeze_snapshot(
        rig.store, OPERATOR, rig.home, project.id, SnapshotConfig(eval_share=0.4, include_extra=True)
    )
    return rig.here(rig.queue(RunKind.REWARD, snapshot=snapshot, model=rig.model(), **WORDS))


def task_of(rig: Rig, task_id: str) -> Any:
    from data.labels.tasks import get_task

    with rig.store.read() as tx:
        return get_task(tx, task_id)


def report_of(rig: Rig, run: Run) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((rig.folder(run) / "report.json").read_text(encoding="utf-8"))
    return found


def test_the_report_agrees_with_the_runs_own_figures(run: Run, rig: Rig) -> None:
    report = report_of(rig, run)
    model = report["model"]
    assert model["rankings"] == run.result["held_out_rankings"]
    assert model["pair_accuracy"]["value"] == pytest.approx(run.result["held_out"]["pair_accuracy"])
    assert model["exact_order"]["value"] == pytest.approx(run.result["held_out"]["exact_order"])
    assert report["verdicts"] == run.result["verdicts"]
    assert model["pair_accuracy"]["low"] < model["pair_accuracy"]["value"] <= model["pair_accuracy"]["high"]
    assert report["snapshot"] == run.snapshot_id and report["schema"] == 1


def test_the_report_has_people_beside_the_model(run: Run, rig: Rig) -> None:
    model = report_of(rig, run)["model"]
    assert model["human_agreement"]["n"] > 0
    assert 0.5 < model["human_agreement"]["value"] < 1
    assert len(model["by_annotator"]) == 2
    assert {row["of"] for row in model["by_k"]} == {4}
    assert {row["of"] for row in model["by_distance"]} <= {1, 2, 3}


def test_the_instant_model_stands_beside_it(run: Run, rig: Rig) -> None:
    report = report_of(rig, run)
    assert 0 <= report["instant"]["pair_accuracy"]["value"] <= 1
    assert report["instant"]["rankings"] == report["train_rankings"]
    assert report["learning_curve"]["points"][-1]["rankings"] == report["train_rankings"]
    assert any("instant reward model" in each for each in report["verdicts"])


def test_the_worst_disagreements_are_those_of_the_saved_model(run: Run, rig: Rig) -> None:
    report, scorer = report_of(rig, run), Scorer(rig.home, run.id, CPU)
    groups = {each.ranking_id: each for each in read_groups(rig.home.snapshot_folder(run.snapshot_id or ""))}
    assert report["worst"]
    for each in report["worst"]:
        group = groups[each["ranking_id"]]
        assert group.split is Split.EVAL and group.annotator == each["annotator"]
        assert group.ranks[group.responses.index(each["better"])] < group.ranks[group.responses.index(each["worse"])]
        better, worse = scorer.score([(group.messages, each["better"]), (group.messages, each["worse"])]).tolist()
        assert better - worse == pytest.approx(each["margin"], abs=1e-10) and better < worse


def test_features_are_computed_once(run: Run, rig: Rig) -> None:
    (folder,) = feature_folders(rig.home)
    files = sorted(path.name for path in folder.glob("*.npz"))
    assert about_features(folder)["pooling"] == "mean over the response"
    again = rig.here(rig.queue(RunKind.FEATURES, project=project_of(rig, run), model=rig.model(), max_length=512))
    assert again.result == {"texts": 240, "with_features": 240}
    assert sorted(path.name for path in folder.glob("*.npz")) == files


def project_of(rig: Rig, run: Run) -> Any:
    from data.labels.projects import get_project

    with rig.store.read() as tx:
        return get_project(tx, run.project_id or "")


def test_a_feature_is_the_middle_layers_mean_over_the_response(run: Run, rig: Rig) -> None:
    (folder,) = feature_folders(rig.home)
    group = next(read_groups(rig.home.snapshot_folder(run.snapshot_id or "")))
    key = text_key(group.messages, group.responses[0])
    kept = load_features(folder, [key])[key]

    source = find_model(rig.model(), rig.home, SimpleNamespace(models={}))  # type: ignore[arg-type]
    encoder, model = load_encoder(source), load_language_model(source, torch.float32)
    prompt, response = encoder.prompt_ids(group.messages), encoder.response_ids(group.responses[0])
    with torch.no_grad():
        states = model(torch.tensor([prompt + response]), output_hidden_states=True).hidden_states
    wanted = states[1][0, len(prompt) :].mean(0)  # the first of two layers
    # The file keeps float16: 2^-11 of each number is lost, and 2^-25 of those near 0.
    assert kept.tolist() == pytest.approx(wanted.tolist(), rel=2**-11, abs=2**-25)
    padded = Middle(model, CPU).features([[1] * 40, prompt + response], [0, len(prompt)])[1]
    assert padded.tolist() == pytest.approx(wanted.tolist(), abs=1e-10)


def test_a_spoilt_file_of_features_counts_as_missing(tmp_path: Path) -> None:
    add_features(tmp_path / "m", {"model": "m"}, ["a" * 32, "b" * 32], np.eye(2), 1.0)
    add_features(tmp_path / "m", {"model": "m"}, ["c" * 32], np.ones((1, 2)), 2.0)
    (tmp_path / "m" / "zzz.npz").write_bytes(b"PK spoilt")
    (tmp_path / "m" / "half.part").write_bytes(b"")
    found = load_features(tmp_path / "m", ["a" * 32, "c" * 32, "d" * 32])
    assert {key[0]: value.tolist() for key, value in found.items()} == {"a": [1, 0], "c": [1, 1]}


def test_without_texts_for_the_instant_model_the_report_has_the_rest(rig: Rig) -> None:
    words = {"snapshot": rig.small_snapshot, "model": rig.model()}
    for limit in (0, 5):
        report = report_of(rig, rig.here(rig.queue(RunKind.REWARD, instant_texts=limit, **words)))
        assert "instant" not in report and report["model"]["rankings"] == 3
    few = rig.here(rig.queue(RunKind.REWARD, instant_texts=20, **words))
    assert rig.events(few, "instant_texts_reached")
    assert report_of(rig, few)["instant"]["rankings"] == 2
    assert report_of(rig, few)["learning_curve"] is None


def test_without_a_held_out_side_there_is_no_report(rig: Rig) -> None:
    snapshot = freeze_snapshot(rig.store, OPERATOR, rig.home, rig.project(4).id, SnapshotConfig(eval_share=0.0))
    run = rig.here(rig.queue(RunKind.REWARD, snapshot=snapshot, model=rig.model()))
    assert not (rig.folder(run) / "report.json").exists()
    assert run.result["verdicts"] == []
