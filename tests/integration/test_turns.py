"""Every kind of run ends a response with the same token, and sees one date: on models whose turns end with another
token than the tokenizer's, and whose template asks for the date."""

from __future__ import annotations

import datetime
import json
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa
import torch
from chat_families import EOS, FAMILIES, save_family_model, set_clock
from rig import Rig
from transformers import AutoModelForCausalLM, GenerationConfig

from data.files.rollouts import HELD_OUT, read_rollout
from data.files.snapshots import read_groups
from data.records import Run, RunKind, Snapshot, Split
from data.store.tables import run as run_table
from data.store.tables import snapshot as snapshot_table
from training.jobs.reporter import Silent
from training.launch.kinds import config_of
from training.lm.encoding import Encoder
from training.lm.models import Machine, ModelSource, find_model, load_encoder
from training.lm.scorer import Scorer
from training.ppo.build_roles import readings_of
from training.ppo.roles import ScoredRow

pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:fan_in_fan_out:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*experimental.*:UserWarning"),
]
CPU = Machine(torch.device("cpu"), is_bf16=False)
SHORT = {"max_new_tokens": 12, "learning_rate": 1e-3}


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("turns"))
    yield made
    made.close()


def model_of(rig: Rig, name: str, *, ending: bool = False) -> str:
    """A model of a family; `ending`: it says the family's end with a probability of a half, whatever came."""
    folder = rig.models / f"{name}{'-ending' if ending else ''}"
    if not folder.exists():
        save_family_model(folder, name, ends_with=FAMILIES[name].end_id if ending else None)
    return str(folder)


def reward_of(rig: Rig, name: str, **changes: Any) -> Run:
    words = {"model": model_of(rig, name, ending=True), "adapter": "lora", "epochs": 1} | SHORT | changes
    words.pop("max_new_tokens")
    return rig.here(rig.queue(RunKind.REWARD, snapshot=rig.small_snapshot, **words))


def record(monkeypatch: pytest.MonkeyPatch, place: str, ids: Callable[[Any], list[list[int]]]) -> list[list[int]]:
    """What a function of ours returned, as token ids, over all its calls."""
    owner, _, name = place.rpartition(".")
    imported = pkgutil.resolve_name(owner)
    inner, found = getattr(imported, name), list[list[int]]()

    def recorded(*given: Any, **words: Any) -> Any:
        out = inner(*given, **words)
        found.extend(ids(out))
        return out

    monkeypatch.setattr(imported, name, recorded)
    return found


def drawn_ids(drawn: list[Any]) -> list[list[int]]:
    return [each.ids for each in drawn if each.has_ended]


def ids_of_rows(rows: list[dict[str, Any]]) -> list[list[int]]:
    return [row[name] for row in rows for name in ("labels", "chosen_ids", "rejected_ids") if name in row]


def ids_of_groups(encoded: Any) -> list[list[int]]:
    return [
        ids[start:]
        for group in [*encoded.train, *encoded.held_out]
        for ids, start in zip(group.sequences, group.prompt_lengths, strict=True)
    ]


def of_sampling(rig: Rig, name: str, patch: pytest.MonkeyPatch) -> tuple[Run, list[list[int]]]:
    found = record(patch, "training.sample.run.generate", drawn_ids)
    words = {"model": model_of(rig, name, ending=True), "k": 4, "max_new_tokens": 12, "only_new": False}
    return rig.here(rig.queue(RunKind.SAMPLE, project=rig.project(4), **words)), found


def of_training(kind: RunKind) -> Callable[..., tuple[Run, list[list[int]]]]:
    def train(rig: Rig, name: str, patch: pytest.MonkeyPatch) -> tuple[Run, list[list[int]]]:
        found = record(patch, "training.methods.finetune.reported", ids_of_rows)
        words = {"model": model_of(rig, name), "epochs": 1, "batch_size": 4, "micro_batch_size": 4}
        return rig.here(rig.queue(kind, snapshot=rig.small_snapshot, **words)), found

    return train


def of_reward(rig: Rig, name: str, patch: pytest.MonkeyPatch) -> tuple[Run, list[list[int]]]:
    found = record(patch, "training.reward.data.encode_snapshot", ids_of_groups)
    return reward_of(rig, name), found


def of_ppo(rig: Rig, name: str, patch: pytest.MonkeyPatch) -> tuple[Run, list[list[int]]]:
    """What it samples, what its reward model reads of that, what it learns beside it, and what its evaluation draws."""
    reward = reward_of(rig, name)
    found = record(patch, "training.ppo.rollout.generate", drawn_ids)
    read = record(patch, "training.ppo.roles.ended_text", lambda text: [text.response])
    learnt = record(patch, "training.ppo.run.ptx_examples", ptx_ids)
    words = {"model": model_of(rig, name, ending=True), "prompts_per_iteration": 4, "iterations": 1, "ptx_coef": 0.5}
    words |= {"share_prompts": False} | SHORT
    run = rig.here(rig.queue(RunKind.PPO, snapshot=rig.small_snapshot, reward_run=reward, **words))
    held_out = [row["ids"] for row in read_rollout(rig.folder(run), HELD_OUT, 0) if row["ended"]]
    assert read and learnt and held_out
    return run, [*found, *read, *learnt, *held_out]


def ptx_ids(examples: list[tuple[list[int], list[int]]]) -> list[list[int]]:
    return [response for _, response in examples]


def of_rloo(rig: Rig, name: str, patch: pytest.MonkeyPatch) -> tuple[Run, list[list[int]]]:
    """TRL samples and stops; what our reward model is given of that, and what it reads."""
    import training.methods.rloo

    reward, given = reward_of(rig, name), list[list[int]]()
    inner = training.methods.rloo.ScoredRow

    def row(*words: Any) -> Any:
        given.append(words[2])
        return inner(*words)

    patch.setattr(training.methods.rloo, "ScoredRow", row)
    read = record(patch, "training.ppo.roles.ended_text", lambda text: [text.response])
    words = {"model": model_of(rig, name, ending=True), "iterations": 2, "prompts_per_step": 4} | SHORT
    words["responses_per_prompt"] = 2
    run = rig.here(rig.queue(RunKind.RLOO, snapshot=rig.small_snapshot, reward_run=reward, **words))
    ended = [ids for ids in given if len(ids) < 12]
    assert len(ended) > len(given) / 2, "half of all tokens are the end"
    return run, [*ended, *read]


RUNS = {
    "sampling": of_sampling, "sft": of_training(RunKind.SFT), "dpo": of_training(RunKind.DPO), "reward": of_reward,
    "ppo": of_ppo, "rloo": of_rloo,
}  # fmt: skip


@pytest.mark.parametrize("name", ["gemma", pytest.param("phi3", marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", RUNS)
def test_every_kind_of_run_ends_a_response_with_the_same_token(
    kind: str, name: str, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, found = RUNS[kind](rig, name, monkeypatch)
    assert len(found) >= 4
    assert {ids[-1] for ids in found} == {FAMILIES[name].end_id}
    assert all(ids.count(FAMILIES[name].end_id) == 1 for ids in found)
    if kind != "sampling":
        stored = json.loads((rig.folder(run) / "model" / "turn.json").read_text())
        assert stored == {"end_ids": list(FAMILIES[name].ends), "template_date": None}
    if kind not in ("sampling", "reward"):
        settings = GenerationConfig.from_pretrained(rig.folder(run) / "model")
        assert settings.eos_token_id == [FAMILIES[name].end_id, EOS]


@torch.no_grad()
def chance_to_end(model: Any, encoder: Encoder, rig: Rig) -> float:
    """The mean probability that a model ends the turn behind a response that people put first."""
    found = []
    for group in read_groups(rig.home.snapshot_folder(rig.small_snapshot.id)):
        if group.split is Split.TRAIN:
            ids = encoder.prompt_ids(group.messages) + encoder.response_ids(group.best)[: -len(encoder.end_ids)]
            found.append(torch.softmax(model(torch.tensor([ids])).logits[0, -1], dim=-1)[encoder.end_id].item())
    return sum(found) / len(found)


@pytest.mark.parametrize("name", ["gemma", "phi3"])
def test_sft_teaches_to_end_the_turn(name: str, rig: Rig) -> None:
    words = {"adapter": "full", "epochs": 12, "learning_rate": 1e-2, "batch_size": 4, "micro_batch_size": 4}
    run = rig.here(rig.queue(RunKind.SFT, snapshot=rig.small_snapshot, model=model_of(rig, name), **words))
    folders = (model_of(rig, name), str(rig.folder(run) / "model"))
    encoder = load_encoder(ModelSource("m", folders[0], ""))
    before, after = (chance_to_end(AutoModelForCausalLM.from_pretrained(each), encoder, rig) for each in folders)
    assert before < 0.02
    assert after > 0.2, "at a response's end, and after six letters of four kinds"


def test_an_older_reward_model_reads_its_own_end_of_the_policys_ids(rig: Rig) -> None:
    """Older releases ended what it learnt from with the tokenizer's end token, and stored nothing."""
    reward = reward_of(rig, "gemma", seed=1)
    (rig.folder(reward) / "model" / "turn.json").unlink()
    words = {"reward": reward, "model": model_of(rig, "gemma", ending=True)}
    for layout in ("shared", "lora"):
        parts = rig.parts(layout, **words)
        row = ScoredRow((), [7], [20, 21, 4], "")
        assert parts.roles.reward_model.reading.text(row).response == [20, 21, EOS]
        rig.finish(parts.reporter.run)
    assert Scorer(rig.home, reward.id, CPU).encode(({"role": "user", "content": "a"},), "b").response[-1] == EOS


FIRST_DAY, SECOND_DAY = datetime.date(2031, 5, 1), datetime.date(2032, 6, 2)


def snapshot_of(rig: Rig, day: datetime.date) -> Snapshot:
    """A snapshot that was frozen on a day."""
    made = rig.snapshot(rig.project(12), eval_share=0.25)
    at = datetime.datetime.combine(day, datetime.time(12), datetime.UTC).timestamp()
    with rig.store.begin() as tx:
        tx.execute(sa.update(snapshot_table).where(snapshot_table.c.id == made.id).values(created_at=at))
    return made


def sequences_of(encoded: Any) -> list[list[int]]:
    return [ids for group in encoded.train for ids in group.sequences]


def of_rewards(rig: Rig, snapshot: Snapshot, patch: pytest.MonkeyPatch) -> tuple[Run, list[list[int]]]:
    found = record(
        patch, "training.reward.data.encode_snapshot", lambda out: [e for g in out.train for e in g.sequences]
    )
    words = {"model": model_of(rig, "llama3"), "epochs": 1}
    return rig.here(rig.queue(RunKind.REWARD, snapshot=snapshot, **words)), found


def of_finetuning(kind: RunKind) -> Callable[..., tuple[Run, list[list[int]]]]:
    def train(rig: Rig, snapshot: Snapshot, patch: pytest.MonkeyPatch) -> tuple[Run, list[list[int]]]:
        names = ("input_ids", "prompt_ids")
        found = record(
            patch, "training.methods.finetune.reported", lambda rows: [r[n] for r in rows for n in names if n in r]
        )
        words = {"model": model_of(rig, "llama3"), "epochs": 1, "batch_size": 16, "micro_batch_size": 16}
        return rig.here(rig.queue(kind, snapshot=snapshot, **words)), found

    return train


def of_policies(kind: RunKind) -> Callable[..., tuple[Run, list[list[int]]]]:
    """Prompts to sample from, and held-out ones."""

    def train(rig: Rig, snapshot: Snapshot, patch: pytest.MonkeyPatch) -> tuple[Run, list[list[int]]]:
        words = {"model": model_of(rig, "llama3"), "epochs": 1}
        reward = rig.here(rig.queue(RunKind.REWARD, snapshot=snapshot, **words))
        where = "training.methods.rloo" if kind is RunKind.RLOO else "training.ppo.run"
        found = record(patch, f"{where}.load_prompts", lambda items: [item.ids for item in items])
        held_out = record(patch, "training.ppo.run.held_out_prompts", lambda items: [item.ids for item in items])
        sizes = {"prompts_per_step": 4, "responses_per_prompt": 2} if kind is RunKind.RLOO else {
            "prompts_per_iteration": 4
        }  # fmt: skip
        words = {"model": model_of(rig, "llama3"), "iterations": 1, "max_new_tokens": 4} | sizes
        run = rig.here(rig.queue(kind, snapshot=snapshot, reward_run=reward, **words))
        return run, [*found, *held_out]

    return train


DATED = {
    "sft": of_finetuning(RunKind.SFT), "dpo": of_finetuning(RunKind.DPO), "reward": of_rewards,
    "ppo": of_policies(RunKind.PPO), "rloo": of_policies(RunKind.RLOO),
}  # fmt: skip


@pytest.mark.parametrize("kind", DATED)
def test_two_runs_on_one_snapshot_see_the_same_ids_whatever_the_day(
    kind: str, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot, seen, runs = snapshot_of(rig, FIRST_DAY), list[list[list[int]]](), list[Run]()
    for day in ((2033, 1, 1), (2034, 2, 2)):
        with monkeypatch.context() as patch:
            set_clock(patch, *day)
            run, found = DATED[kind](rig, snapshot, patch)
            runs.append(run)
            seen.append(found)
    assert seen[0] == seen[1] and seen[0]
    encoder = load_encoder(ModelSource("m", model_of(rig, "llama3"), ""))
    assert all("Today Date: 01 May 2031" in encoder.show(ids) for ids in seen[0])
    assert {rig.events(run, "template")[0].detail["date"] for run in runs} == {"2031-05-01"}
    stored = json.loads((rig.folder(runs[1]) / "model" / "turn.json").read_text())
    assert stored["template_date"] == "2031-05-01"


def test_without_a_snapshot_the_date_is_that_of_the_runs_making(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when it is resumed on another day."""
    seen = record(monkeypatch, "training.sample.run.Sampler.encode", lambda found: [found[0]])
    words = {"model": model_of(rig, "llama3"), "k": 2, "max_new_tokens": 4, "only_new": False}
    run = rig.queue(RunKind.SAMPLE, project=rig.project(2), **words)
    at = datetime.datetime.combine(SECOND_DAY, datetime.time(23), datetime.UTC).timestamp()
    with rig.store.begin() as tx:
        tx.execute(sa.update(run_table).where(run_table.c.id == run.id).values(created_at=at))
    set_clock(monkeypatch, 2035, 3, 3)
    done = rig.here(run)
    encoder = load_encoder(ModelSource("m", model_of(rig, "llama3"), ""))
    assert seen and all("Today Date: 02 Jun 2032" in encoder.show(ids) for ids in seen)
    (event,) = rig.events(done, "template")
    assert event.detail == {
        "model": model_of(rig, "llama3"), "responses_end_with": "<|eot_id|>", "date": "2032-06-02",
    }  # fmt: skip


@pytest.mark.parametrize("layout", ["shared", "lora"])
def test_a_reward_model_reads_the_date_of_its_own_training(layout: str, rig: Rig) -> None:
    """Its scores, and their zero, were learnt with it; the policy sees that of the snapshot that it is trained on."""
    first, second = snapshot_of(rig, FIRST_DAY), snapshot_of(rig, SECOND_DAY)
    words = {"model": model_of(rig, "llama3"), "epochs": 1, "adapter": "lora" if layout == "shared" else "full"}
    reward = rig.here(rig.queue(RunKind.REWARD, snapshot=first, **words))
    words = {"model": model_of(rig, "llama3"), "adapter": "lora", "max_new_tokens": 8, "iterations": 1}
    run = rig.here(rig.queue(RunKind.PPO, snapshot=second, reward_run=reward, **words))
    assert "Today Date: 02 Jun 2032" in rig.events(run, "first_prompt")[0].detail["text"]
    messages = ({"role": "user", "content": "prompt 1"},)
    scorer = Scorer(rig.home, reward.id, CPU)
    assert "Today Date: 01 May 2031" in scorer.encoder.show(scorer.encode(messages, "zz").prompt)
    reporter = Silent(rig.store, rig.home, run)
    config = config_of(run)
    source = find_model(config.model, rig.home, reporter)
    policy = load_encoder(source, reporter.template_date)
    (reading,) = readings_of(config, reporter, source, policy).values()
    assert reading.shares_ids and not reading.shares_prompts
    row = ScoredRow(messages, policy.prompt_ids(messages), policy.response_ids("zz"), "zz")
    assert reading.text(row) == scorer.encode(messages, "zz")
    assert reading.text(row).prompt != row.prompt
