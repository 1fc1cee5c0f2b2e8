"""The sampling run: distinct responses with where they came from, offered to be ranked; nothing twice, nothing lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import factories as make
import pytest
import sqlalchemy as sa
import torch
from rig import Rig
from tiny import END, STRICT_TEMPLATE, tiny_tokenizer
from transformers import AutoModelForCausalLM

import training.sample.run
from data.fields import from_dict
from data.label_settings import LabelSettings
from data.labels.projects import create_project, set_settings
from data.labels.prompts import add_prompts, list_prompts
from data.labels.tasks import get_tasks, list_task_ids
from data.records import FailureKind, NewPrompt, Project, Response, Run, RunKind, RunStatus, Split, Task
from data.runs.state import resume_run
from data.store.tables import response as response_table
from data.text import text_fingerprint
from training.jobs.reporter import Cancelled
from training.launch.config import SampleConfig
from training.lm.encoding import Encoder
from training.lm.generation import generate, random_numbers
from training.lm.models import Machine, weights_hash

CPU = Machine(torch.device("cpu"), is_bf16=False)
WORDS = {"k": 4, "max_new_tokens": 8, "batch_size": 3, "temperature": 1.0}


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("sampling"))
    tilt(made.model("llama", tie_word_embeddings=False))
    yield made
    made.close()


def tilt(folder: str) -> None:
    """A model that ends some responses and says printable letters: its texts can be read back as ids."""
    model = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        model.lm_head.weight.mul_(0.1)
        model.lm_head.weight[70:90].mul_(60)
        model.lm_head.weight[END].mul_(60)
    model.save_pretrained(folder)


def new_project(rig: Rig, *texts: str, held_out: tuple[str, ...] = ()) -> Project:
    with rig.store.begin() as tx:
        project = create_project(tx, f"project {tx.new_id()}", k=4, overlap=2)
        prompts = [NewPrompt(({"role": "user", "content": text},), None) for text in texts]
        prompts += [NewPrompt(({"role": "user", "content": text},), Split.EVAL) for text in held_out]
        add_prompts(tx, project.id, prompts)
    return project


def queued(rig: Rig, project: Project, **changes: Any) -> Run:
    return rig.queue(RunKind.SAMPLE, **({"project": project, "model": rig.model()} | WORDS | changes))


def tasks_of(rig: Rig, project: Project) -> list[Task]:
    with rig.store.read() as tx:
        return get_tasks(tx, list_task_ids(tx, project.id, limit=100))


def responses_of(rig: Rig, run: Run) -> list[Response]:
    with rig.store.read() as tx:
        rows = tx.rows(
            sa.select(response_table)
            .where(response_table.c.run_id == run.id)
            .order_by(response_table.c.prompt_id, response_table.c.sample_index)
        )
    return [Response(row.id, row.prompt_id, row.text, row.model, json.loads(row.provenance)) for row in rows]


@pytest.fixture(scope="module")
def project(rig: Rig) -> Project:
    return new_project(rig, *(f"question {n}" for n in range(7)), held_out=("held out",))


@pytest.fixture(scope="module")
def finished(rig: Rig, project: Project) -> Run:
    """A run done as in the product: by a worker, in a process of its own."""
    return rig.in_child(queued(rig, project))


def test_every_prompt_gets_a_task_of_k_distinct_responses(finished: Run, rig: Rig, project: Project) -> None:
    tasks = tasks_of(rig, project)
    assert len(tasks) == 8
    for task in tasks:
        assert len(task.responses) == 4
        assert len({text_fingerprint(each.text) for each in task.responses}) == 4
        assert all(each.text.strip() for each in task.responses)
    counts = finished.result
    assert (counts["prompts"], counts["responses"], counts["tasks"], counts["doubles"]) == (8, 32, 8, 0)
    assert (counts["skipped_prompts"], counts["prompts_without_task"]) == (0, 0)
    assert counts["tokens"] == sum(each.provenance["n_tokens"] for task in tasks for each in task.responses)
    ended = sum(each.provenance["finish_reason"] == "eos" for task in tasks for each in task.responses)
    assert 0 < counts["ended"] == ended < 32
    assert (finished.step, finished.total_steps) == (8, 8)


def test_what_the_project_drops_is_drawn_again_then_left_out_and_counted(rig: Rig) -> None:
    """The model ends some of its responses; the project does not want those that stopped at the limit."""
    project = new_project(rig, *(f"question {n}" for n in range(7)))
    words = {"max_new_tokens": 24, "max_resamples": 2}
    plain = rig.here(queued(rig, new_project(rig, *(f"question {n}" for n in range(7))), **words))
    with rig.store.begin() as tx:
        set_settings(tx, project.id, settings=LabelSettings(on_cut="drop"))
    run = rig.here(queued(rig, project, **words))
    offered = [each for task in tasks_of(rig, project) for each in task.responses]
    counts = run.result
    assert {each.provenance["finish_reason"] for each in offered} == {"eos"}
    assert counts["resampled"] > 0
    assert counts["dropped_cut"] > 0
    assert counts["ended"] == 28 - counts["dropped_cut"] - counts["doubles"]
    assert counts["tasks"] + counts["prompts_without_task"] == 7
    assert (plain.result["badge_cut"], plain.result.get("dropped_cut")) == (28 - plain.result["ended"], None)
    assert rig.events(run, "sample_hygiene")[0].detail["dropped_cut"] == counts["dropped_cut"]


def test_a_response_says_how_it_can_be_drawn_again(finished: Run, rig: Rig, project: Project) -> None:
    model = AutoModelForCausalLM.from_pretrained(rig.model())
    encoder = Encoder(tiny_tokenizer())
    for task in tasks_of(rig, project)[:3]:
        for each in task.responses:
            facts = each.provenance
            assert (each.model, facts["source"], facts["run_id"]) == (rig.model(), "sampled", finished.id)
            assert facts["revision"] == weights_hash(Path(rig.model())) == finished.result["revision"]
            assert facts["template_hash"] == encoder.template_hash
            names = ("temperature", "top_k", "top_p", "max_new_tokens", "seed")
            config = from_dict(SampleConfig, {name: facts[name] for name in names})
            with rig.store.read() as tx:
                prompt = next(each for each in list_prompts(tx, project.id, limit=100) if each.id == task.prompt_id)
            key = f"{prompt.fingerprint}:{facts['place']}:{facts['attempt']}"
            ids = encoder.prompt_ids(task.messages)
            assert len(ids) == facts["n_prompt_tokens"]
            numbers = random_numbers(config.machine.seed, [key], config.sampling.max_new_tokens)
            (again,) = generate(
                model, [ids], 1, config.sampling, numbers, stop_ids=encoder.stop_ids, pad_id=encoder.pad_id, machine=CPU
            )
            assert encoder.decode(again.ids) == each.text
            assert (again.finish_reason, len(again.ids)) == (facts["finish_reason"], facts["n_tokens"])


def test_metrics_are_shares_of_what_was_drawn(finished: Run, rig: Rig) -> None:
    found = rig.metrics(finished)
    assert sorted({step for step, _ in found}) == [3, 6, 8]
    assert found[8, "sampling/responses"] == 32
    assert found[8, "sampling/ended_share"] == pytest.approx(finished.result["ended"] / 32)
    assert found[8, "sampling/tokens_mean"] == pytest.approx(finished.result["tokens"] / 32)
    assert found[8, "sampling/doubles"] == 0


def test_prompts_with_a_task_are_left_out_unless_asked_for(finished: Run, rig: Rig, project: Project) -> None:
    ended = rig.here(queued(rig, project), RunStatus.FAILED)
    assert ended.error_kind is FailureKind.BAD_INPUT
    assert "no prompt to sample for: import prompts, or set only_new=false" in (ended.error_message or "")
    again = rig.here(queued(rig, project, only_new=False, seed=1))
    assert (again.result["prompts"], again.result["tasks"]) == (8, 8)
    same = rig.here(queued(rig, project, only_new=False))
    assert same.result["tasks"] == 0  # the same texts are the same task
    assert len(tasks_of(rig, project)) == 16


@pytest.mark.parametrize(("split", "limit", "n"), [("eval", 0, 1), ("train", 0, 3), ("all", 0, 4), ("train", 2, 2)])
def test_which_prompts_are_sampled(split: str, limit: int, n: int, rig: Rig) -> None:
    made = new_project(rig, "a", "b", "c", held_out=("d",))
    run = rig.here(queued(rig, made, split=split, limit=limit))
    assert run.result["prompts"] == n
    asked = {task.messages[-1]["content"] for task in tasks_of(rig, made)}
    assert ("d" in asked) == (split != "train")


def test_doubles_are_drawn_again_then_left_out_and_counted(rig: Rig) -> None:
    narrow = {"temperature": 0.01, "max_new_tokens": 3, "max_resamples": 2}
    made = new_project(rig, "a", "b")
    run = rig.here(queued(rig, made, **narrow))
    assert (run.result["resampled"], run.result["doubles"]) == (2 * 2 * 3, 6)  # 2 prompts, 2 attempts, 3 places each
    assert (run.result["tasks"], run.result["prompts_without_task"], run.result["responses"]) == (0, 2, 2)
    assert rig.events(run, "doubles_left_out")[0].detail["n"] == 6
    assert tasks_of(rig, made) == []
    assert rig.metrics(run)[2, "sampling/tokens_mean"] == pytest.approx(run.result["tokens"] / 8)
    some = rig.here(queued(rig, new_project(rig, "a", "b"), max_new_tokens=1, max_resamples=20))
    assert some.result["resampled"] > 0 and some.result["doubles"] == 0 and some.result["tasks"] == 2


def test_a_response_without_a_word_is_drawn_again(rig: Rig) -> None:
    """One token each, of some twenty likely ones; where it is the end token, nothing is left to be ranked."""
    made = new_project(rig, *(str(number) for number in range(30)))
    run = rig.here(queued(rig, made, max_new_tokens=1, max_resamples=20, k=2))
    texts = [each.text for task in tasks_of(rig, made) for each in task.responses]
    assert len(texts) == 60 and all(text.strip() for text in texts)
    assert run.result["resampled"] > 0


def test_one_response_each_without_tasks(rig: Rig) -> None:
    made = new_project(rig, "a", "b")
    run = rig.here(queued(rig, made, k=1, make_tasks=False))
    assert (run.result["responses"], run.result["tasks"], run.result["prompts_without_task"]) == (2, 0, 0)
    assert len(responses_of(rig, run)) == 2
    assert tasks_of(rig, made) == []


def test_prompts_that_can_not_be_used_are_skipped_with_a_reason(rig: Rig) -> None:
    strict = rig.model("llama-strict", tokenizer=tiny_tokenizer(template=STRICT_TEMPLATE), max_position_embeddings=40)
    made = new_project(rig, "fine", "w" * 50, "v" * 29, "u" * 30)
    with rig.store.begin() as tx:
        add_prompts(tx, made.id, [NewPrompt(({"role": "system", "content": "s"}, {"role": "user", "content": "t"}))])
    run = rig.here(queued(rig, made, model=strict))
    reasons = [event.detail["reason"] for event in rig.events(run, "prompt_skipped")]
    assert len(reasons) == 3
    assert "53 tokens, more than the 32 that leave room for a response" in reasons
    assert "33 tokens, more than the 32 that leave room for a response" in reasons
    assert any("System role not supported" in reason for reason in reasons)
    assert (run.result["prompts"], run.result["skipped_prompts"]) == (2, 3)
    assert (run.step, run.total_steps) == (5, 5)
    lower = rig.here(queued(rig, new_project(rig, "12345678", "1"), max_prompt_tokens=10))
    assert (lower.result["prompts"], lower.result["skipped_prompts"]) == (1, 1)


def test_a_response_that_could_never_fit_is_bad_input(rig: Rig) -> None:
    ended = rig.here(queued(rig, new_project(rig, "a"), max_new_tokens=512), RunStatus.FAILED)
    assert ended.error_kind is FailureKind.BAD_INPUT
    assert "max_new_tokens = 512 leaves no room for a prompt" in (ended.error_message or "")


def test_a_model_that_gives_no_numbers_is_told_apart(rig: Rig) -> None:
    spoilt = rig.model("llama-spoilt")
    model = AutoModelForCausalLM.from_pretrained(spoilt)
    with torch.no_grad():
        model.model.norm.weight.fill_(float("nan"))
    model.save_pretrained(spoilt)
    ended = rig.here(queued(rig, made := new_project(rig, "a"), model=spoilt), RunStatus.FAILED)
    assert ended.error_kind is FailureKind.NOT_FINITE
    assert tasks_of(rig, made) == []


def texts(rig: Rig, run: Run) -> list[tuple[str, int, str]]:
    found = responses_of(rig, run)
    with rig.store.read() as tx:
        project_id = rig.look(run).project_id or ""
        prompts = {each.id: each.messages[-1]["content"] for each in list_prompts(tx, project_id, limit=100)}
    return sorted((prompts[each.prompt_id], each.provenance["place"], each.text) for each in found)


COUNTS = ("prompts", "responses", "tasks", "skipped_prompts", "resampled", "doubles", "ended", "tokens")


def stop_at_token(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Ask the run to stop at the n-th token that it draws, batches counted together."""
    left = [number]
    original = training.sample.run.generate

    def generate_and_stop(*words: Any, check: Any, **more: Any) -> Any:
        def counted() -> None:
            left[0] -= 1
            if left[0] == 0:
                raise Cancelled("stop")
            check()

        return original(*words, check=counted, **more)

    monkeypatch.setattr(training.sample.run, "generate", generate_and_stop)


@pytest.mark.parametrize("token", [1, 12, 21])
def test_stopped_and_resumed_it_draws_the_same_and_nothing_twice(
    token: int, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, words = ["w" * 700, *(f"question {n}" for n in range(7))], {"only_new": False}
    whole = rig.here(queued(rig, new_project(rig, *asked), **words))
    with monkeypatch.context() as patch:
        stop_at_token(patch, token)
        stopped = rig.here(queued(rig, made := new_project(rig, *asked), **words), RunStatus.CANCELLED)
    n_before = {1: 0, 12: 8, 21: 20}[token]  # the first of three batches holds the prompt that is too long
    assert len(responses_of(rig, stopped)) == stopped.result.get("responses", 0) == n_before
    with rig.store.begin() as tx:
        resume_run(tx, stopped.id)
    resumed = rig.here(stopped)
    assert texts(rig, resumed) == texts(rig, whole)
    assert {name: resumed.result[name] for name in COUNTS} == {name: whole.result[name] for name in COUNTS}
    assert len(tasks_of(rig, made)) == 7
    last = {key: value for key, value in rig.metrics(whole).items() if key[0] == 8}
    assert {key: value for key, value in rig.metrics(resumed).items() if key[0] == 8} == last


def test_a_limit_holds_over_a_resume(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    made = new_project(rig, *"abcdefgh")
    with monkeypatch.context() as patch:
        stop_at_token(patch, 12)
        stopped = rig.here(queued(rig, made, limit=5), RunStatus.CANCELLED)
    with rig.store.begin() as tx:
        resume_run(tx, stopped.id)
    resumed = rig.here(stopped)
    assert (resumed.result["prompts"], resumed.step, resumed.total_steps) == (5, 5, 5)
    assert len(tasks_of(rig, made)) == 5


def test_another_project_with_the_same_prompts_gets_the_same_texts(rig: Rig) -> None:
    one, two = (rig.here(queued(rig, new_project(rig, "a", "b"), batch_size=size)) for size in (1, 2))
    assert texts(rig, one) == texts(rig, two)
    other = rig.here(queued(rig, new_project(rig, "a", "b"), seed=9))
    assert texts(rig, one) != texts(rig, other)


def test_a_ranked_project_can_be_sampled_for(rig: Rig) -> None:
    """Nothing of a sampling run touches rankings."""
    person, made = make.make_person(rig.store), new_project(rig, "a")
    task = make.make_task(rig.store, made, "x", "y", prompt="ranked before")
    make.make_ranking(rig.store, task, person, [1, 2])
    run = rig.here(queued(rig, made, only_new=False))
    assert run.result["prompts"] == 2
    assert len(tasks_of(rig, made)) == 3
