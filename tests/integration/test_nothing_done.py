"""A run that could use nothing of what it was asked for has failed, and says why; what a run left out stands beside it.

Before, a sampling run that had skipped 4 of 4 prompts had succeeded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import factories as make
import pytest
from cli_runner import Cli
from rig import Rig
from tiny import STRICT_TEMPLATE, tiny_tokenizer

from data.labels.prompts import add_prompts, prompt_id_of
from data.labels.tasks import add_task
from data.records import FailureKind, NewPrompt, NewResponse, Project, Run, RunKind, RunStatus
from data.runs.left_out import LEFT_OUT, left_out_lines
from data.runs.metrics import samples_of

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")
SYSTEM = {"role": "system", "content": "s"}
REFUSED = "System role not supported"


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("nothing"))
    yield made
    made.close()


def strict(rig: Rig) -> str:
    """A model whose template takes no system message."""
    return rig.model("llama-strict", tokenizer=tiny_tokenizer(template=STRICT_TEMPLATE))


def prompt(text: str, *, with_system: bool = False) -> NewPrompt:
    user = {"role": "user", "content": text}
    return NewPrompt((SYSTEM, user) if with_system else (user,))


def project_of(rig: Rig, *prompts: NewPrompt) -> Project:
    project = make.make_project(rig.store)
    with rig.store.begin() as tx:
        add_prompts(tx, project.id, prompts)
    return project


def failed(rig: Rig, queued: Run) -> str:
    """The message of a run that must fail on its input."""
    ended = rig.here(queued, RunStatus.FAILED)
    assert ended.error_kind is FailureKind.BAD_INPUT
    return ended.error_message or ""


def lines(rig: Rig, run: Run) -> list[str]:
    with rig.store.read() as tx:
        return left_out_lines(tx, run.id)


def sampled(rig: Rig, *prompts: NewPrompt, **changes: Any) -> Run:
    words = {"k": 2, "max_new_tokens": 8, "model": rig.model()} | changes
    return rig.queue(RunKind.SAMPLE, project=project_of(rig, *prompts), **words)


def test_a_sampling_run_that_skipped_every_prompt_has_failed(rig: Rig) -> None:
    message = failed(rig, sampled(rig, *(prompt(f"p{n}", with_system=True) for n in range(4)), model=strict(rig)))
    assert message.startswith("none of the 4 prompts can be used; the first: ") and REFUSED in message
    too_long = failed(rig, sampled(rig, prompt("w" * 40), prompt("v" * 41), max_prompt_tokens=10))
    assert "none of the 2 prompts can be used" in too_long and "more than the 10" in too_long


def test_a_sampling_run_that_skipped_some_says_how_many_of_how_many(rig: Rig) -> None:
    given = (prompt("fine"), prompt("w" * 60), prompt("fine too"))
    run = rig.here(sampled(rig, *given, max_prompt_tokens=20, max_resamples=20))
    (event,) = [each for each in rig.events(run, LEFT_OUT) if each.detail["what"] == "prompts"]
    assert (event.detail["n"], event.detail["of"]) == (1, 3)
    assert "more than the 20" in event.detail["first"]
    assert any(line.startswith("1 of 3 prompts left out; the first: ") for line in lines(rig, run))


def test_prompts_without_anything_to_rank_are_said(rig: Rig) -> None:
    run = rig.here(sampled(rig, prompt("a"), prompt("b"), temperature=0.01, max_new_tokens=3, max_resamples=1))
    assert run.result["tasks"] == 0
    assert any(line.startswith("2 of 2 tasks to rank left out") for line in lines(rig, run))


@pytest.fixture(scope="module")
def strict_reward(rig: Rig) -> Run:
    return rig.here(rig.queue(RunKind.REWARD, snapshot=rig.small_snapshot, model=strict(rig)))


def scored(rig: Rig, reward: Run, *messages: list[dict[str, str]]) -> Run:
    path = rig.home.uploads / f"given-{len(list(rig.home.uploads.iterdir()))}.jsonl"
    rows = [{"line": n, "messages": each, "responses": ["a", "b"]} for n, each in enumerate(messages, start=1)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return rig.queue(RunKind.SCORE, reward_run=reward, input_file=str(path))


USER = {"role": "user", "content": "p"}


def test_scores_of_a_file_of_which_every_row_is_refused(rig: Rig, strict_reward: Run) -> None:
    message = failed(rig, scored(rig, strict_reward, [SYSTEM, USER], [SYSTEM, USER]))
    assert "none of the 2 rows can be used" in message and REFUSED in message
    some = rig.here(scored(rig, strict_reward, [SYSTEM, USER], [USER]))
    assert (some.result["rows"], some.result["rows_refused"]) == (2, 1)
    assert lines(rig, some)[0].startswith("1 of 2 rows left out; the first: ")


def waiting_project(rig: Rig, *prompts: NewPrompt) -> Project:
    project = make.make_project(rig.store)
    with rig.store.begin() as tx:
        for each in prompts:
            texts = [NewResponse("a"), NewResponse("b")]
            add_task(tx, project.id, prompt_id_of(tx, project.id, each), texts, slots=1)
    return project


def test_scores_of_tasks_where_none_waits_or_every_one_is_refused(rig: Rig, strict_reward: Run) -> None:
    def queued(project: Project) -> Run:
        return rig.queue(RunKind.SCORE, reward_run=strict_reward, project=project, unranked=True)

    assert "no task waits to be ranked" in failed(rig, queued(make.make_project(rig.store)))
    refused = waiting_project(rig, prompt("p", with_system=True))
    assert "none of the 1 tasks can be used" in failed(rig, queued(refused))
    mixed = waiting_project(rig, prompt("p"), prompt("q", with_system=True))
    for n_rows in (2, 1):  # the refused one is looked at again, and costs only itself
        run = rig.here(queued(mixed))
        assert (run.result["rows"], run.result["rows_refused"]) == (n_rows, 1)
        assert lines(rig, run)[0].startswith("1 of 2 tasks left out")
    fine = waiting_project(rig, prompt("p"))
    assert rig.here(queued(fine)).result["rows"] == 1
    assert rig.here(queued(fine)).result["rows"] == 0  # all are scored already, and that is what was asked for


def test_features_of_no_response_or_of_none_that_can_be_read(rig: Rig) -> None:
    empty = rig.queue(RunKind.FEATURES, project=make.make_project(rig.store), model=rig.model())
    assert "the project has no responses to read" in failed(rig, empty)
    refused = waiting_project(rig, prompt("p", with_system=True))
    message = failed(rig, rig.queue(RunKind.FEATURES, project=refused, model=strict(rig)))
    assert "none of the 2 texts can be used" in message
    some = rig.here(rig.queue(RunKind.FEATURES, model=strict(rig),
                              project=waiting_project(rig, prompt("p", with_system=True), prompt("q"))))  # fmt: skip
    assert (some.result["texts"], some.result["with_features"]) == (4, 2)
    assert lines(rig, some)[0].startswith("2 of 4 texts left out")


def compared(rig: Rig, project: Project, model_b: str, **more: Any) -> Run:
    words = {"model_a": rig.model(), "model_b": model_b, "max_new_tokens": 8, "prompts": "any"}
    return rig.queue(RunKind.COMPARE, project=project, **words, **more)


def test_a_comparison_with_a_model_that_reads_no_prompt_has_failed(rig: Rig) -> None:
    message = failed(rig, compared(rig, project_of(rig, prompt("p", with_system=True)), strict(rig)))
    assert "none of the 1 prompts of model b can be used" in message


def test_models_are_compared_on_the_prompts_that_both_read(rig: Rig) -> None:
    """One side's mean over three prompts beside the other's over one would compare prompts, not models."""
    given = (prompt("p"), prompt("q", with_system=True), prompt("r", with_system=True))
    run = rig.here(compared(rig, project_of(rig, *given), strict(rig), reward_run=rig.reward()))
    with rig.store.read() as tx:
        rows = [row for _, row in samples_of(tx, run.id, 2)]
    of_a = [row["score"] for row in rows if row["side"] == "a"]
    (shared,) = [row["score"] for row in rows if row["side"] == "a" and row["prompt"] == "p"]
    assert len(of_a) == 3
    assert run.result["prompts_compared"] == 1
    assert run.result["score_a"] == pytest.approx(shared, abs=1e-12)
    assert [each.split(";")[0] for each in lines(rig, run)] == ["2 of 3 prompts of model b left out"]


@pytest.mark.parametrize("kind", [RunKind.SFT, RunKind.DPO])
def test_fine_tuning_on_what_the_template_refuses_says_so(rig: Rig, kind: RunKind) -> None:
    project, person = make.make_project(rig.store), make.make_person(rig.store)
    for number in range(2):
        task = make.make_task(rig.store, project, "a", "b", prompt=(SYSTEM, {"role": "user", "content": str(number)}))
        make.make_ranking(rig.store, task, person, [1, 2])
    queued = rig.queue(kind, snapshot=rig.snapshot(project, eval_share=0), model=strict(rig))
    assert "none of the 2 training examples can be used; the first: 2 refused" in failed(rig, queued)


def test_the_command_line_says_what_a_run_left_out(rig: Rig, capsys: pytest.CaptureFixture[str]) -> None:
    run = rig.here(sampled(rig, prompt("fine"), prompt("w" * 60), max_prompt_tokens=20, max_resamples=20))
    said = Cli(rig.home.root, capsys)("runs", "show", run.id)
    assert said.status == 0
    assert "\n  1 of 2 prompts left out; the first: " in said.out
