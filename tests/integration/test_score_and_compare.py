"""Scoring a file and comparing two models: the scorer's numbers, in their order, and nothing lost to one bad row."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import factories as make
import pytest
import torch
from rig import Rig
from tiny import STRICT_TEMPLATE, tiny_tokenizer

from data.errors import InvalidInput
from data.files.paths import Home
from data.labels.projects import get_project
from data.labels.prompts import prompt_id_of
from data.labels.scores import scores_of_tasks
from data.labels.tasks import add_task
from data.records import FailureKind, NewPrompt, NewResponse, Project, Run, RunKind, RunStatus
from data.runs.metrics import sample_steps, samples_of
from labeling.files.handover import hand_over
from training.lm.models import Machine
from training.lm.scorer import Scorer

pytestmark = [pytest.mark.float64, pytest.mark.filterwarnings("ignore::FutureWarning")]
Rows = list[dict[str, Any]]
CPU = Machine(torch.device("cpu"), is_bf16=False)


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("score"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def project(rig: Rig) -> Project:
    with rig.store.read() as tx:
        return get_project(tx, rig.small_snapshot.project_id)


def handed_over(rig: Rig, rows: list[dict[str, Any]]) -> str:
    """The rows as `rankloop score` hands them to the run."""
    number = len(list(rig.home.uploads.iterdir()))
    given, taken = rig.home.root / f"given-{number}.jsonl", rig.home.uploads / f"{number}.jsonl"
    given.write_text("".join(json.dumps(row) + "\n" for row in rows))
    hand_over(given, taken, with_responses=True)
    return str(taken)


def scored(rig: Rig, rows: Rows, reward: Run | None = None, **changes: Any) -> tuple[Run, Rows]:
    queued = rig.queue(RunKind.SCORE, reward_run=reward or rig.reward(), input_file=handed_over(rig, rows), **changes)
    run = rig.here(queued)
    return run, [json.loads(line) for line in (rig.folder(run) / "scores.jsonl").read_text().splitlines()]


def test_every_row_gets_its_scores_in_its_order(rig: Rig) -> None:
    rows = [{"prompt": f"prompt {n}", "responses": ["z" * (n + 1), "a", "b c"][: 1 + n % 3]} for n in range(150)]
    run, found = scored(rig, rows, batch_size=7)
    assert len(found) == 150
    scorer = Scorer(rig.home, rig.reward().id, CPU)
    for given, row in zip(rows, found, strict=True):
        assert row["responses"] == given["responses"]
        texts = [(tuple(row["messages"]), text) for text in row["responses"]]
        assert row["scores"] == pytest.approx(scorer.score(texts).tolist(), abs=1e-10)
    n_texts = sum(len(row["responses"]) for row in rows)
    counts = {"rows": 150, "responses": n_texts, "rows_refused": 0, "prompts_cut": 0, "responses_cut": 0}
    ends = {"file": "scores.jsonl", "reward_model": scorer.source.revision, "best_of": run.result["best_of"]}
    assert run.result == counts | ends
    assert list(run.result["best_of"]) == ["1", "2", "3"]
    assert (run.step, run.total_steps) == (150, 150)
    assert not (rig.folder(run) / "scores.jsonl.part").exists()


def test_texts_that_are_cut_are_counted(rig: Rig) -> None:
    run, found = scored(
        rig, [{"prompt": "p" * 600, "responses": ["short", "z" * 600]}, {"prompt": "p", "responses": ["a"]}]
    )
    assert (run.result["prompts_cut"], run.result["responses_cut"]) == (1, 1)
    assert all(isinstance(score, float) for row in found for score in row["scores"])


def test_a_row_that_the_template_refuses_loses_only_itself(rig: Rig) -> None:
    model = rig.model("llama-strict", tokenizer=tiny_tokenizer(template=STRICT_TEMPLATE))
    reward = rig.here(rig.queue(RunKind.REWARD, snapshot=rig.small_snapshot, model=model))
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    rows = [
        {"prompt": "p", "responses": ["a", "b"]},
        {"messages": messages, "responses": ["a"]},
        {"prompt": "q", "responses": ["c"]},
    ]
    run, found = scored(rig, rows, reward)
    assert [row["scores"] is None for row in found] == [False, True, False]
    assert "System role not supported" in found[1]["problem"]
    assert (run.result["rows"], run.result["rows_refused"], run.result["responses"]) == (3, 1, 3)


def test_an_input_that_is_gone_is_bad_input(rig: Rig) -> None:
    words: dict[str, Any] = {"reward_run": rig.reward(), "input_file": str(rig.home.uploads / "gone.jsonl")}
    with pytest.raises(InvalidInput, match=r"input_file = '.*gone.jsonl': .*there is no such file"):
        rig.queue(RunKind.SCORE, **words)
    (rig.home.uploads / "gone.jsonl").write_text('{"prompt": "hi", "responses": ["a"]}\n')
    queued = rig.queue(RunKind.SCORE, **words)
    (rig.home.uploads / "gone.jsonl").unlink()
    ended = rig.here(queued, RunStatus.FAILED)
    assert ended.error_kind is FailureKind.BAD_INPUT
    assert "gone.jsonl" in (ended.error_message or "")


def test_rows_of_people_are_read_as_they_are_and_what_is_no_row_is_counted(rig: Rig) -> None:
    """The native format, with no command between that makes it plain: `prompt` as well as `messages`."""
    file = rig.home.uploads / "native.jsonl"
    rows = [
        {"prompt": "hi", "responses": ["a", {"text": "b", "model": "m"}]}, {"prompt": "hi"},
        {"messages": [{"role": "user", "content": "hi"}], "responses": ["a", "b"]}, {"responses": ["a"]},
    ]  # fmt: skip
    file.write_text("".join(json.dumps(row) + "\n" for row in rows) + "no json\n")
    run = rig.here(rig.queue(RunKind.SCORE, reward_run=rig.reward(), input_file=str(file)))
    first, third = (json.loads(line) for line in (rig.folder(run) / "scores.jsonl").read_text().splitlines())
    assert (first["line"], third["line"]) == (1, 3)
    assert first["scores"] == third["scores"]
    (left_out,) = rig.events(run, "rows_left_out")
    assert left_out.detail["rows"] == 3
    assert "line 2: no 'responses'" in left_out.detail["first"]
    assert "line 4: no 'prompt' and no 'messages'; the row has 'responses'" in left_out.detail["first"]
    assert "line 5: " in left_out.detail["first"]


def compared(rig: Rig, project: Project, reward: Run | None = None, **changes: Any) -> tuple[Run, list[dict[str, Any]]]:
    words = {"model_a": rig.model(), "model_b": rig.model("llama-other", seed=9), "max_new_tokens": 8} | changes
    run = rig.here(rig.queue(RunKind.COMPARE, project=project, reward_run=reward, **words))
    with rig.store.read() as tx:
        last = sample_steps(tx, run.id)[-1]
        return run, [row for _, row in samples_of(tx, run.id, last)]


def test_both_sides_answer_the_same_prompts(rig: Rig, project: Project) -> None:
    run, rows = compared(rig, project, rig.reward(), k=2, limit=3)
    sides = {side: [row for row in rows if row["side"] == side] for side in "ab"}
    assert [row["prompt"] for row in sides["a"]] == [row["prompt"] for row in sides["b"]]
    assert len(sides["a"]) == 6 and run.result["prompts"] == 3
    assert {row["model"] for row in sides["b"]} == {rig.model("llama-other")}
    scorer = Scorer(rig.home, rig.reward().id, CPU)
    for side, found in sides.items():
        texts = [(({"role": "user", "content": row["prompt"]},), row["response"]) for row in found]
        wanted = scorer.score(texts)
        assert [row["score"] for row in found] == pytest.approx(wanted.tolist(), abs=1e-10)
        assert run.result[f"score_{side}"] == pytest.approx(wanted.mean().item(), abs=1e-10)
    assert all(row["n_tokens"] <= 8 and isinstance(row["ended"], bool) for row in rows)


def test_the_same_model_on_both_sides_says_the_same(rig: Rig, project: Project) -> None:
    _, rows = compared(rig, project, model_b=rig.model(), k=2)
    texts = {side: [row["response"] for row in rows if row["side"] == side] for side in "ab"}
    assert texts["a"] == texts["b"]
    assert len(set(texts["a"])) > 1
    assert all(row["score"] is None for row in rows)


def test_one_prompt_may_be_typed(rig: Rig, project: Project) -> None:
    run, rows = compared(rig, project, prompt="what now?")
    assert [row["prompt"] for row in rows] == ["what now?"] * 2
    assert run.result["prompts"] == 1
    assert "score_a" not in run.result


def test_unlikely_tokens_may_be_left_out(rig: Rig, project: Project) -> None:
    _, rows = compared(rig, project, model_b=rig.model(), top_k=1, k=2, prompt="x")
    assert len({row["response"] for row in rows}) == 1  # the likeliest token each time


def test_prompts_too_long_for_one_model_are_told(rig: Rig, project: Project) -> None:
    """Where one model reads none of the prompts there is nothing to compare."""
    short = rig.model("llama-short", max_position_embeddings=32)
    words = {"model_a": rig.model(), "model_b": short, "max_new_tokens": 8, "prompt": "w" * 40}
    ended = rig.here(rig.queue(RunKind.COMPARE, project=project, **words), RunStatus.FAILED)
    (event,) = rig.events(ended, "prompt_skipped")
    assert event.detail["side"] == "b" and "more than the 24 that leave room" in event.detail["reason"]
    assert ended.error_kind is FailureKind.BAD_INPUT
    assert "none of the 1 prompts of model b can be used" in (ended.error_message or "")


def test_a_project_without_prompts_is_bad_input(rig: Rig) -> None:
    empty = make.make_project(rig.store)
    words = {"model_a": rig.model(), "model_b": rig.model()}
    ended = rig.here(rig.queue(RunKind.COMPARE, project=empty, **words), RunStatus.FAILED)
    assert ended.error_kind is FailureKind.BAD_INPUT
    assert "the project has no prompts; type one, or import some" in (ended.error_message or "")


def test_the_same_models_and_seed_say_the_same_again(rig: Rig, project: Project) -> None:
    first, second = (compared(rig, project, seed=2)[1] for _ in range(2))
    assert first == second
    assert compared(rig, project, seed=3)[1] != first


def test_scores_are_written_for_a_reward_model_that_was_moved(rig: Rig, tmp_path: Path) -> None:
    """Nothing in a reward run's folder knows where it lies."""
    (tmp_path / "runs").mkdir()
    shutil.copytree(rig.folder(rig.reward()), tmp_path / "runs" / "copy")
    texts = [(({"role": "user", "content": "p"},), "zz")]
    here, there = Scorer(rig.home, rig.reward().id, CPU), Scorer(Home(tmp_path), "copy", CPU)
    assert torch.equal(here.score(texts), there.score(texts))


def test_what_waits_to_be_ranked_is_scored_in_the_store(rig: Rig) -> None:
    """Every waiting task once; what is ranked, held, or too odd for the template stays without scores."""
    project, person = make.make_project(rig.store), make.make_person(rig.store)
    tasks = [make.make_task(rig.store, project, "z" * n, "a", f"b{n}", prompt=f"wait {n}") for n in range(1, 71)]
    make.make_ranking(rig.store, tasks[0], person, [1, 2, 3])
    reward = rig.reward()
    run = rig.here(rig.queue(RunKind.SCORE, reward_run=reward, project=project, unranked=True))
    assert (run.result["rows"], run.result["responses"], run.result["rows_refused"]) == (69, 207, 0)
    assert (run.step, run.total_steps) == (69, 69)
    scorer = Scorer(rig.home, reward.id, CPU)
    with rig.store.read() as tx:
        found = scores_of_tasks(tx, [task.id for task in tasks])
    assert found[tasks[0].id] == {}
    for task in tasks[1::9]:
        wanted = scorer.score([(task.messages, each.text) for each in task.responses]).tolist()
        assert found[task.id][reward.id] == pytest.approx(wanted, abs=1e-10)
    again = rig.here(rig.queue(RunKind.SCORE, reward_run=reward, project=project, unranked=True))
    assert again.result["rows"] == 0


def test_a_task_that_the_template_refuses_stays_without_scores(rig: Rig) -> None:
    model = rig.model("llama-strict", tokenizer=tiny_tokenizer(template=STRICT_TEMPLATE))
    reward = rig.here(rig.queue(RunKind.REWARD, snapshot=rig.small_snapshot, model=model))
    project = make.make_project(rig.store)
    fine = make.make_task(rig.store, project, "a", "b")
    with rig.store.begin() as tx:
        messages = ({"role": "system", "content": "s"}, {"role": "user", "content": "u"})
        prompt_id = prompt_id_of(tx, project.id, NewPrompt(messages))
        odd = add_task(tx, project.id, prompt_id, [NewResponse("a"), NewResponse("b")], slots=1).task_id
    run = rig.here(rig.queue(RunKind.SCORE, reward_run=reward, project=project, unranked=True))
    assert (run.result["rows"], run.result["rows_refused"]) == (2, 1)
    with rig.store.read() as tx:
        assert {task_id: len(each) for task_id, each in scores_of_tasks(tx, [fine.id, odd]).items()} == {
            fine.id: 1, odd: 0
        }  # fmt: skip


def test_scoring_what_waits_needs_a_project(rig: Rig) -> None:
    with pytest.raises(InvalidInput, match="a score run needs a project"):
        rig.queue(RunKind.SCORE, reward_run=rig.reward(), unranked=True)
