"""The reward run from the queue to a model that plain transformers loads and that gives the same scores."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import factories as make
import pytest
import torch
from rig import Rig
from safetensors.torch import load_file
from tiny import tiny_tokenizer
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from data.errors import InvalidInput, NotFound, WorkFailed
from data.fields import from_dict
from data.files.snapshots import Group, read_groups
from data.labels.roles import OPERATOR
from data.records import FailureKind, Run, RunKind, RunStatus, Snapshot, Split
from data.runs.state import list_runs
from data.store.tables import run as run_table
from labeling.snapshot.freeze import SnapshotConfig, freeze_snapshot
from training.launch.config import RewardConfig
from training.launch.count import count_reward_data
from training.lm.models import Machine
from training.lm.scorer import Scorer

pytestmark = [
    pytest.mark.float64,
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:fan_in_fan_out:UserWarning"),
]
CPU = Machine(torch.device("cpu"), is_bf16=False)
WORDS = {"epochs": 2, "learning_rate": 3e-3, "batch_prompts": 4, "micro_batch_tokens": 80, "eval_every": 3}
STEP_METRICS = {"loss", "pair_accuracy", "score_mean", "score_std", "grad_norm", "learning_rate"}
HELD_OUT_METRICS = {"held_out_loss", "held_out_pair_accuracy", "held_out_exact_order", "held_out_length_accuracy"}


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("reward"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def finished(rig: Rig) -> Run:
    """A run done as in the product: by a worker, in a process of its own."""
    return rig.in_child(queued(rig))


def queued(rig: Rig, **changes: Any) -> Run:
    words = {"snapshot": rig.small_snapshot, "model": rig.model()} | WORDS | changes
    return rig.queue(RunKind.REWARD, **words)


def groups_of(rig: Rig, split: Split, snapshot: Snapshot | None = None) -> list[Group]:
    folder = rig.home.snapshot_folder((snapshot or rig.small_snapshot).id)
    return [each for each in read_groups(folder) if each.split is split]


def test_the_run_says_what_it_works_with_and_what_it_did(finished: Run, rig: Rig) -> None:
    assert {"torch", "transformers", "trl", "peft", "device", "bf16", "threads"} <= finished.versions.keys()
    assert (finished.step, finished.total_steps) == (6, 6)
    (data,) = rig.events(finished, "data")
    assert data.detail["train"] == 9 and data.detail["held_out"] == finished.result["held_out_rankings"] == 3
    assert finished.result["model"] == rig.model()
    log = (rig.folder(finished) / "log.txt").read_text()
    assert "step 6/6" in log


def test_every_step_and_every_evaluation_is_reported(finished: Run, rig: Rig) -> None:
    found = rig.metrics(finished)
    by_step: dict[int, set[str]] = {}
    for step, name in found:
        by_step.setdefault(step, set()).add(name.removeprefix("reward/"))
    assert by_step == {
        0: HELD_OUT_METRICS,
        **dict.fromkeys((1, 2, 4, 5), STEP_METRICS),
        3: STEP_METRICS | HELD_OUT_METRICS,
        6: STEP_METRICS | HELD_OUT_METRICS,
    }
    assert all(value is not None for value in found.values())


def test_ten_evaluations_unless_the_run_says_how_many(rig: Rig) -> None:
    run = rig.here(queued(rig, eval_every=0, epochs=7))
    at = [step for step, name in rig.metrics(run) if name == "reward/held_out_loss"]
    assert run.total_steps == 21
    assert at == [0, 3, 6, 9, 12, 15, 18, 21], "every third step, and never more than ten"


def test_held_out_figures_are_those_of_the_saved_model(finished: Run, rig: Rig) -> None:
    scorer = Scorer(rig.home, finished.id, CPU)
    losses, right, exact, longer = [], [], [], []
    for group in groups_of(rig, Split.EVAL):
        scores = scorer.score([(group.messages, text) for text in group.responses]).tolist()
        lengths = [len(scorer.encoder.response_ids(text)) for text in group.responses]
        n = len(scores)
        pairs = [(a, b) for a in range(n) for b in range(n) if group.ranks[a] < group.ranks[b]]
        losses.append(sum(math.log1p(math.exp(scores[b] - scores[a])) for a, b in pairs) / len(pairs))
        right.append(sum(scores[a] > scores[b] for a, b in pairs) / len(pairs))
        exact.append(all(scores[a] > scores[b] for a, b in pairs))
        longer.append(sum((lengths[a] > lengths[b]) + 0.5 * (lengths[a] == lengths[b]) for a, b in pairs) / len(pairs))
    wanted = {
        "loss": sum(losses) / len(losses),
        "pair_accuracy": sum(right) / len(right),
        "exact_order": sum(exact) / len(exact),
        "length_accuracy": sum(longer) / len(longer),
    }
    for name, value in wanted.items():
        assert finished.result["held_out"][name] == pytest.approx(value, abs=1e-10)
        assert rig.metrics(finished)[6, f"reward/held_out_{name}"] == pytest.approx(value, abs=1e-10)


def test_the_mean_score_of_sft_responses_is_0(finished: Run, rig: Rig) -> None:
    texts = [(group.messages, text) for group in groups_of(rig, Split.TRAIN) for text in group.responses]
    scores = Scorer(rig.home, finished.id, CPU).score(texts)
    assert scores.mean().item() == pytest.approx(0, abs=1e-10)
    assert scores.std(correction=0).item() == pytest.approx(finished.result["score_std"], abs=1e-10)
    assert abs(finished.result["shift"]) > 1e-2


def assert_plain_transformers_agrees(rig: Rig, run: Run, off: float = 1e-10) -> None:
    """Texts as a stranger would score them: the saved tokenizer and model, nothing of ours but the shift."""
    place = rig.folder(run) / "model"
    tokenizer, model = AutoTokenizer.from_pretrained(place), AutoModelForSequenceClassification.from_pretrained(place)
    assert model.config.num_labels == 1 and model.score.bias is None
    assert tokenizer.pad_token_id is not None and tokenizer.pad_token_id == model.config.pad_token_id
    texts = [(({"role": "user", "content": f"prompt {n}"},), "z" * n) for n in (1, 9, 4, 0)]
    ours = Scorer(rig.home, run.id, CPU).score(texts)
    ids = [
        tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, return_dict=False)
        + tokenizer(text, add_special_tokens=False)["input_ids"]
        + [tokenizer.eos_token_id]
        for messages, text in texts
    ]
    for side in ("right", "left"):
        tokenizer.padding_side = side
        if side == "left" and model.config.model_type == "gpt2":
            continue  # plain GPT-2 counts positions from the padding
        padded = tokenizer.pad({"input_ids": ids}, return_tensors="pt")
        with torch.no_grad():
            theirs = model.eval()(**padded).logits.squeeze(-1) - run.result["shift"]
        assert ours.tolist() == pytest.approx(theirs.tolist(), abs=off)


def test_plain_transformers_gives_the_same_scores(finished: Run, rig: Rig) -> None:
    assert_plain_transformers_agrees(rig, finished)


PADDINGS = [(family, padding) for family in ("llama", "gpt2") for padding in ("own", "end", "none at all")]


@pytest.mark.parametrize("adapter", ["lora", "full"])
@pytest.mark.parametrize(("family", "padding"), [*PADDINGS, ("qwen2", "own"), ("qwen2", "end")])
def test_every_family_and_padding_comes_back_the_same(family: str, adapter: str, padding: str, rig: Rig) -> None:
    """`own`: a padding token; `end`: it is the end token, as the demo model's; `none at all`: no special token left."""
    tokenizer = {
        "own": tiny_tokenizer(),
        "end": tiny_tokenizer(pad="<|end|>"),
        "none at all": tiny_tokenizer(only_end=True, pad=None),
    }[padding]
    words = {"eos_token_id": 0, "bos_token_id": 0} if padding == "none at all" else {}
    model = rig.model(f"{family}-{padding.replace(' ', '')}", tokenizer=tokenizer, **words)
    run = rig.here(queued(rig, model=model, adapter=adapter, epochs=1))
    assert_plain_transformers_agrees(rig, run)
    added = [event.detail["token"] for event in rig.events(run, "padding_token_added")]
    assert added == (["<|padding|>"] if padding == "none at all" else [])
    embedding = AutoModelForSequenceClassification.from_pretrained(rig.folder(run) / "model").get_input_embeddings()
    assert embedding.num_embeddings == 264  # there was room for one more


def test_a_table_without_room_grows_by_the_padding_token(rig: Rig) -> None:
    tokenizer = tiny_tokenizer(only_end=True, pad=None)
    ids = {"eos_token_id": 0, "bos_token_id": 0, "pad_token_id": None, "vocab_size": 257}
    model = rig.model("llama-tight", tokenizer=tokenizer, **ids)
    for adapter in ("lora", "full"):
        run = rig.here(queued(rig, model=model, adapter=adapter, epochs=1))
        assert_plain_transformers_agrees(rig, run)


@pytest.mark.parametrize("adapter", ["lora", "full"])
def test_a_step_does_not_depend_on_how_it_is_cut(adapter: str, rig: Rig) -> None:
    """Nine rankings in steps of four: the last step has one, and micro-batches of three and one within it."""
    runs = [
        rig.here(queued(rig, adapter=adapter, learning_rate=1e-3, micro_batch_tokens=size, batch_prompts=4))
        for size in (1, 140, 4096)
    ]
    whole, *others = [rig.metrics(run) for run in reversed(runs)]
    for other in others:
        assert other.keys() == whole.keys()
        for key, value in whole.items():
            assert other[key] == pytest.approx(value, abs=1e-10, rel=1e-10), key
    shifts = [run.result["shift"] for run in runs]
    assert shifts == pytest.approx([shifts[0]] * 3, abs=1e-10)


def test_a_ragged_step_is_a_mean_over_its_rankings(rig: Rig) -> None:
    """Seven rankings in a step of eight: lots of four and three. A mean of means would weigh the last ones more."""
    project = rig.project(n_prompts=7, seed=5)
    snapshot = freeze_snapshot(rig.store, OPERATOR, rig.home, project.id, SnapshotConfig(eval_share=0.0))
    words = {"snapshot": snapshot, "batch_prompts": 8, "learning_rate": 0.0, "epochs": 1}
    cut, whole = (rig.here(queued(rig, micro_batch_tokens=size, **words)) for size in (140, 4096))
    for name in ("loss", "pair_accuracy", "score_mean", "score_std", "grad_norm"):
        wanted = rig.metrics(whole)[1, f"reward/{name}"]
        assert rig.metrics(cut)[1, f"reward/{name}"] == pytest.approx(wanted, rel=1e-10)


def test_prompts_are_shared_where_the_model_allows_it_and_nothing_changes(rig: Rig) -> None:
    shared, separate = (rig.here(queued(rig, share_prompts=each, adapter="full")) for each in (True, False))
    (event,) = rig.events(shared, "shared_prompts")
    assert event.detail["output_difference"] < 1e-10 and event.detail["gradient_difference"] < 1e-10
    assert not rig.events(separate, "shared_prompts", "prompts_not_shared")
    one, other = rig.metrics(shared), rig.metrics(separate)
    assert one.keys() == other.keys()
    for key, value in other.items():
        assert one[key] == pytest.approx(value, abs=1e-10, rel=1e-10), key


def test_where_prompts_can_not_be_shared_each_response_is_read_alone(rig: Rig) -> None:
    run = rig.here(queued(rig, model=rig.model("gemma2"), epochs=1))
    (event,) = rig.events(run, "prompts_not_shared")
    assert event.detail["reason"]
    assert_plain_transformers_agrees(rig, run)


@pytest.mark.parametrize("words", [{"loss": "plackett-luce"}, {"ties": "half", "margin": "ranks"}])
def test_other_losses_learn_the_same_order(words: dict[str, str], rig: Rig) -> None:
    run = rig.here(queued(rig, **words, epochs=4, learning_rate=1e-2))
    assert run.result["held_out"]["pair_accuracy"] > 0.9


def test_the_same_seed_gives_the_same_run_to_the_last_bit(rig: Rig) -> None:
    one, same, other = (rig.here(queued(rig, seed=seed)) for seed in (3, 3, 4))
    assert rig.metrics(one) == rig.metrics(same) != rig.metrics(other)
    weights = [load_file(rig.folder(run) / "model" / "model.safetensors") for run in (one, same)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.mark.parametrize("adapter", ["lora", "full"])
def test_only_what_should_change_changes(adapter: str, rig: Rig) -> None:
    run = rig.here(queued(rig, adapter=adapter))
    before = load_file(Path(rig.model()) / "model.safetensors")
    after = load_file(rig.folder(run) / "model" / "model.safetensors")
    changed = {name for name, tensor in before.items() if not torch.equal(tensor, after[name])}
    linear = {name for name in before if "_proj" in name}
    assert changed == (linear if adapter == "lora" else set(before) - {"lm_head.weight"})
    assert after.keys() - before.keys() == {"score.weight"}
    assert (rig.folder(run) / "adapter").exists() == (adapter == "lora")


def test_what_is_cut_and_left_out_is_counted(rig: Rig) -> None:
    run = rig.here(queued(rig, max_length=12))
    detail = rig.events(run, "data")[0].detail
    assert detail["prompts_cut"] == 12
    assert detail["responses_cut"] == 0
    assert not rig.events(run, "max_length_lowered")
    assert rig.events(rig.here(queued(rig)), "max_length_lowered")[0].detail == {"asked": 1024, "model_reads": 512}


def test_a_dry_run_counts_what_the_run_will(rig: Rig) -> None:
    """In a child process and before any run is there: to the last number what the run then stores."""
    project, person = make.make_project(rig.store), make.make_person(rig.store)
    for number in range(6):
        texts = [f"{'a' * 30}{number}", f"{'a' * 30}{number + 1}", "zz", "b" * 40]
        task = make.make_task(rig.store, project, *texts, prompt=f"{number}" * (30 if number % 2 else 2))
        make.make_ranking(rig.store, task, person, [4, 3, 1, 2])
    snapshot = freeze_snapshot(rig.store, OPERATOR, rig.home, project.id, SnapshotConfig(eval_share=0.3))
    words = {"max_length": 24, "epochs": 1, "facts": True, "model": rig.model()}
    config = from_dict(RewardConfig, words)
    counted = count_reward_data(rig.store, rig.home, config, snapshot.id)
    with rig.store.read() as tx:
        assert not [each for each in list_runs(tx) if each.snapshot_id == snapshot.id]
    run = rig.here(queued(rig, snapshot=snapshot, **words))
    (data,) = rig.events(run, "data")
    assert counted.counts == data.detail
    assert counted.counts == {
        "train": snapshot.counts["prompts_train"], "held_out": snapshot.counts["prompts_eval"], "prompts_refused": 0,
        "prompts_cut": 6, "responses_cut": 18, "responses_same_when_cut": 6, "groups_without_pair": 0,
        "prompts_with_facts": 0,
    }  # fmt: skip
    assert (counted.max_length, counted.base_model["revision"]) == (24, run.result["base_revision"])
    whole = count_reward_data(rig.store, rig.home, RewardConfig(model=rig.model()), snapshot.id)
    assert (whole.max_length, whole.config["max_length"], sum(whole.counts.values())) == (512, 1024, 6)


def test_what_can_not_be_counted_says_why(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    config = RewardConfig(model=rig.model(), train=False)
    with pytest.raises(InvalidInput, match="is no reward model, and train = false trains none"):
        count_reward_data(rig.store, rig.home, config, rig.small_snapshot.id)
    with pytest.raises(NotFound, match="no snapshot 'nothing'"):
        count_reward_data(rig.store, rig.home, RewardConfig(model=rig.model()), "nothing")
    monkeypatch.setattr("training.launch.count.sys.executable", "/bin/false")
    with pytest.raises(WorkFailed, match="ended with status 1: it said nothing; the run can be started all the same"):
        count_reward_data(rig.store, rig.home, RewardConfig(model=rig.model()), rig.small_snapshot.id)
    monkeypatch.setattr("training.launch.count.sys.executable", "/no/such/python")
    with pytest.raises(WorkFailed, match="can't be started"):
        count_reward_data(rig.store, rig.home, RewardConfig(model=rig.model()), rig.small_snapshot.id)


def test_the_length_baseline_sees_the_response_also_where_the_prompt_was_cut(rig: Rig) -> None:
    project, person = make.make_project(rig.store), make.make_person(rig.store)
    for number in range(8):  # the longer the better, after prompts that are far too long
        task = make.make_task(rig.store, project, "a", "ab", "abc", prompt=f"{number}" * 40)
        make.make_ranking(rig.store, task, person, [4 - len(response.text) for response in task.responses])
    snapshot = freeze_snapshot(rig.store, OPERATOR, rig.home, project.id, SnapshotConfig(eval_share=0.5))
    run = rig.here(queued(rig, snapshot=snapshot, max_length=16, epochs=1))
    assert run.result["held_out"]["length_accuracy"] == 1.0


def test_without_a_held_out_side_there_is_no_evaluation(rig: Rig) -> None:
    snapshot = freeze_snapshot(rig.store, OPERATOR, rig.home, rig.project(4).id, SnapshotConfig(eval_share=0.0))
    run = rig.here(queued(rig, snapshot=snapshot))
    assert run.result["held_out"] is None
    assert not [name for _, name in rig.metrics(run) if "held_out" in name]


@pytest.mark.float32
def test_half_precision_trains_too(rig: Rig) -> None:
    run = rig.here(queued(rig, precision="bf16"))
    assert run.versions["bf16"] is True
    before, *_, after = rig.curve(run, "reward/loss")
    assert after < before
    # Both compute in float32 here, from the same weights. A chain of n rounded operations is off by at most n 2^-24 of
    # the numbers in it (Higham 2002, section 3.1): some 2 layers of 4 products over up to 64 terms, of scores up to 8.
    assert_plain_transformers_agrees(rig, run, off=512 * 2**-24 * 8)


def test_centring_draws_the_scores_to_0(rig: Rig) -> None:
    """Over three models, for one may start at 0 by chance. Measured over eight in float32 (and in float64): the mean
    score is 0.68 (0.87) away from 0 without centring and 0.09 (0.06) with it, and of any three of them the sum is 2.5
    to 26 times smaller with it."""
    shifts = {0.0: 0.0, 0.5: 0.0}
    for seed in range(3):
        words = {"model": rig.model(f"llama-{seed}", seed=seed), "seed": seed, "epochs": 4, "learning_rate": 3e-4}
        for centring in shifts:
            run = rig.here(queued(rig, **words, adapter="full", centring=centring))
            shifts[centring] += abs(run.result["shift"])
    assert shifts[0.5] < 0.5 * shifts[0.0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": "/no/such/model"}, "there is no folder /no/such/model"),
        ({"max_length": 8, "model": "pickle"}, "holds no config.json with .safetensors weights"),
    ],
)
def test_a_model_that_can_not_be_used_is_bad_input(
    changes: dict[str, Any], words: str, rig: Rig, tmp_path: Path
) -> None:
    if changes["model"] == "pickle":
        (tmp_path / "config.json").write_text("{}")
        (tmp_path / "pytorch_model.bin").write_bytes(b"\x80")
        changes = changes | {"model": str(tmp_path)}
    run = queued(rig)
    with rig.store.begin() as tx:  # a folder that was there when the run was queued
        import json

        import sqlalchemy as sa

        values = {"config": json.dumps(run.config | changes)}
        tx.execute(sa.update(run_table).where(run_table.c.id == run.id).values(**values))
    ended = rig.here(run, RunStatus.FAILED)
    assert ended.error_kind is FailureKind.BAD_INPUT
    assert words in (ended.error_message or "")


def test_a_snapshot_with_nothing_to_learn_from_is_bad_input(rig: Rig) -> None:
    project, person = make.make_project(rig.store), make.make_person(rig.store)
    for number in range(3):
        task = make.make_task(rig.store, project, "a", "b", prompt=f"held out {number}", split=Split.EVAL)
        make.make_ranking(rig.store, task, person, [1, 2])
    snapshot = freeze_snapshot(rig.store, OPERATOR, rig.home, project.id, SnapshotConfig())
    ended = rig.here(queued(rig, snapshot=snapshot), RunStatus.FAILED)
    assert ended.error_kind is FailureKind.BAD_INPUT
    assert ended.error_message == "the snapshot's training side has no ranking with a pair; rank more prompts"


def test_soft_pairs_are_learnt_as_sure_as_they_are(rig: Rig) -> None:
    """Three people, of whom one turns every other ranking round, and one ties the last two. The loss by hand."""
    project, people = make.make_project(rig.store, overlap=3), [make.make_person(rig.store) for _ in range(3)]
    for number in range(8):
        texts = [f"{'z' * place}{number}" for place in range(3)]
        task = make.make_task(rig.store, project, *texts, prompt=f"soft {number}")
        for person, ranks in zip(people, ([1, 2, 3], [3, 2, 1] if number % 2 else [1, 2, 3], [1, 2, 2]), strict=True):
            make.make_ranking(rig.store, task, person, ranks)
    snapshot = freeze_snapshot(rig.store, OPERATOR, rig.home, project.id, SnapshotConfig(eval_share=0.4, merge="soft"))
    changes = {"epochs": 1, "learning_rate": 0.0, "batch_prompts": 8, "adapter": "full"}
    run = rig.here(queued(rig, snapshot=snapshot, **changes))
    scorer, found = Scorer(rig.home, run.id, CPU), dict[Split, list[tuple[float, float]]]()
    for group in read_groups(rig.home.snapshot_folder(snapshot.id)):
        scores = scorer.score([(group.messages, text) for text in group.responses]).tolist()
        is_turned = int(group.messages[-1]["content"].split()[1]) % 2 == 1
        sure = {(0, 1): 2 / 3, (0, 2): 2 / 3, (1, 2): 0.5} if is_turned else {(0, 1): 1, (0, 2): 1, (1, 2): 2.5 / 3}
        margins = {(i, j): scores[i] - scores[j] for i, j in sure}
        losses = [p * math.log1p(math.exp(-margins[pair])) + (1 - p) * math.log1p(math.exp(margins[pair]))
                  for pair, p in sure.items()]  # fmt: skip
        right = [float(margins[pair] > 0) for pair, p in sure.items() if p > 0.5]
        found.setdefault(group.split, []).append((sum(losses) / 3, sum(right) / len(right)))
    assert {side: len(each) for side, each in found.items()} == {
        Split.TRAIN: snapshot.counts["prompts_train"], Split.EVAL: snapshot.counts["prompts_eval"],
    }  # fmt: skip
    means = {side: [sum(column) / len(each) for column in zip(*each, strict=True)] for side, each in found.items()}
    assert rig.curve(run, "reward/loss") == pytest.approx([means[Split.TRAIN][0]], abs=1e-10)
    assert rig.curve(run, "reward/pair_accuracy") == pytest.approx([means[Split.TRAIN][1]], abs=1e-10)
    held_out = (run.result["held_out"]["loss"], run.result["held_out"]["pair_accuracy"])
    assert held_out == pytest.approx(means[Split.EVAL], abs=1e-10)
    model = json.loads((rig.folder(run) / "report.json").read_text(encoding="utf-8"))["model"]
    assert model["calibration"]["loss"] == pytest.approx(means[Split.EVAL][0], abs=1e-10)
    assert model["pair_accuracy"]["value"] == pytest.approx(means[Split.EVAL][1], abs=1e-10)
    assert model["by_annotator"] == []
    n_turned = sum(int(group.messages[-1]["content"].split()[1]) % 2 for group in groups_of(rig, Split.EVAL, snapshot))
    n_whole = snapshot.counts["prompts_eval"] - n_turned
    # Whole: all three agree on two pairs, both of two on the third. Turned: one of three on two, none on the third.
    assert model["human_agreement"]["n"] == 7 * (n_whole + n_turned)
    assert model["human_agreement"]["value"] == pytest.approx((7 * n_whole + 2 * n_turned) / (7 * (n_whole + n_turned)))
