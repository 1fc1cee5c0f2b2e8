"""What a reward run may be asked besides: heads, first layers, reference facts, a model that was trained elsewhere;
its model card; and what stands in the files that TRL trains on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import factories as make
import pytest
import torch
from rig import Rig
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification

from data.errors import InvalidInput
from data.files.snapshots import PAIRS, get_snapshot, read_parquet
from data.labels.prompts import add_prompts
from data.labels.roles import OPERATOR
from data.labels.scores import heads_of_tasks
from data.records import FailureKind, NewPrompt, Run, RunKind, RunStatus, Snapshot
from labeling.files.handover import hand_over
from labeling.review.selection import By, SelectionConfig, apply_selection
from labeling.snapshot.export import export_snapshot
from labeling.snapshot.freeze import SnapshotConfig, freeze_snapshot
from training.lm.encoding import with_facts
from training.lm.models import Machine
from training.lm.scorer import Scorer
from training.ppo.roles import ScoredRow
from training.reward.scoring_run import together

pytestmark = [
    pytest.mark.float64,
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:fan_in_fan_out:UserWarning"),
]
CPU = Machine(torch.device("cpu"), is_bf16=False)
WORDS = {"epochs": 2, "learning_rate": 3e-3, "batch_prompts": 4}
ASKED = ({"role": "user", "content": "prompt 3"},)


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("options"))
    yield made
    made.close()


def trained(rig: Rig, expect: RunStatus = RunStatus.SUCCEEDED, **changes: Any) -> Run:
    words = {"snapshot": rig.small_snapshot, "model": rig.model()} | WORDS | changes
    return rig.here(rig.queue(RunKind.REWARD, **words), expect)


def plain_score(rig: Rig, run: Run, ids: list[int]) -> float:
    model = AutoModelForSequenceClassification.from_pretrained(rig.folder(run) / "model").eval()
    with torch.no_grad():
        return float(model(input_ids=torch.tensor([ids])).logits.item()) - run.result["shift"]


@pytest.mark.parametrize("adapter", ["lora", "full"])
def test_the_mean_of_the_heads_is_the_model_that_anybody_loads(adapter: str, rig: Rig) -> None:
    run = trained(rig, heads=4, adapter=adapter)
    scorer = Scorer(rig.home, run.id, CPU)
    fitted = scorer.encode(ASKED, "zzab")
    ids = fitted.prompt + fitted.response
    assert scorer.info.n_heads == 4
    assert scorer.score([(ASKED, "zzab")]).item() == pytest.approx(plain_score(rig, run, ids), abs=1e-10)
    saved = load_file(rig.folder(run) / "model" / "heads.safetensors")
    whole = load_file(rig.folder(run) / "model" / "model.safetensors")
    assert saved["heads"].shape == (4, 32)
    assert torch.allclose(saved["heads"].mean(0, keepdim=True), whole["score.weight"], atol=1e-10, rtol=0)
    assert saved["shifts"].mean().item() == pytest.approx(run.result["shift"], abs=1e-10)
    if adapter == "lora":
        found = load_file(rig.folder(run) / "adapter" / "adapter_model.safetensors")
        (head,) = (each for name, each in found.items() if name.endswith("score.weight"))
        assert head.shape == (1, 32)


def test_each_head_scores_from_its_own_zero(rig: Rig) -> None:
    run = trained(rig, heads=3, adapter="full")
    scorer = Scorer(rig.home, run.id, CPU)
    fitted = [scorer.encode(ASKED, text) for text in ("zzab", "c")]
    sequences = [each.prompt + each.response for each in fitted]
    found = scorer.head_scores(sequences)
    saved = load_file(rig.folder(run) / "model" / "heads.safetensors")
    with torch.no_grad():
        for place, ids in enumerate(sequences):
            hidden = scorer.model.base_model(input_ids=torch.tensor([ids])).last_hidden_state[0, -1]
            scores = saved["heads"] @ hidden - saved["shifts"]
            assert found is not None
            assert found[place].tolist() == pytest.approx(scores.tolist(), abs=1e-10)
            assert len(set(found[place].tolist())) == 3
    assert scorer.score_ids(sequences).shape == (2,)  # the model has its one head again
    assert Scorer(rig.home, rig.reward().id, CPU).head_scores(sequences) is None


@pytest.mark.parametrize("spoil", ["surplus", "missing", "fewer"])
def test_heads_that_are_not_the_ensembles_are_refused(spoil: str, rig: Rig) -> None:
    run = trained(rig, heads=3)
    path = rig.folder(run) / "model" / "heads.safetensors"
    saved = load_file(path)
    changes = {"surplus": {"more": torch.zeros(3)}, "missing": {}, "fewer": {"heads": saved["heads"][:2].clone()}}
    changed = saved | changes[spoil]
    save_file({name: each for name, each in changed.items() if spoil != "missing" or name != "shifts"}, path)
    with pytest.raises(InvalidInput, match=r"expected are 'heads' \(3, width\) and 'shifts' \(3,\)"):
        Scorer(rig.home, run.id, CPU).head_scores([[3, 4, 1]])
    with pytest.raises(InvalidInput, match=r"expected are 'heads' \(3, width\)"):
        rig.parts("shared", reward=run)


def test_a_score_run_of_an_ensemble_tells_the_spread(rig: Rig) -> None:
    run = trained(rig, heads=3)
    rows = [{"prompt": "prompt 1", "responses": ["a", "zz", "b"]}, {"prompt": "prompt 2", "responses": ["z", "c"]}]
    scored, found = scores_of(rig, run, rows)
    assert [len(row["stds"]) for row in found] == [3, 2]
    assert all(std > 0 for row in found for std in row["stds"])
    fitted = Scorer(rig.home, run.id, CPU).encode(({"role": "user", "content": "prompt 1"},), "zz")
    of_heads = Scorer(rig.home, run.id, CPU).head_scores([fitted.prompt + fitted.response])
    assert of_heads is not None
    assert found[0]["stds"][1] == pytest.approx(of_heads.std(correction=0).item(), abs=1e-10)
    assert "heads" not in found[0]
    assert list(scored.result["best_of"]) == ["1", "2", "3"]


def test_what_waits_keeps_the_score_of_each_head_for_a_selection(rig: Rig) -> None:
    run, project = trained(rig, heads=3), make.make_project(rig.store)
    task = make.make_task(rig.store, project, "zz", "a", prompt="waits")
    rig.here(rig.queue(RunKind.SCORE, reward_run=run, project=project, unranked=True))
    scorer = Scorer(rig.home, run.id, CPU)
    fitted = [scorer.encode(task.messages, each.text) for each in task.responses]
    of_heads = scorer.head_scores([each.prompt + each.response for each in fitted])
    assert of_heads is not None
    with rig.store.read() as tx:
        found = heads_of_tasks(tx, [task.id])[task.id][run.id]
    assert [list(each) for each in found] == [pytest.approx(each, abs=1e-10) for each in of_heads.T.tolist()]
    made = apply_selection(rig.store, OPERATOR, project.id, [run.id], SelectionConfig())
    assert made.by is By.DISAGREEMENT


def scores_of(rig: Rig, run: Run, rows: list[dict[str, Any]], **changes: Any) -> tuple[Run, list[dict[str, Any]]]:
    number = len(list(rig.home.uploads.iterdir()))
    given, taken = rig.home.root / f"given-{number}.jsonl", rig.home.uploads / f"{number}.jsonl"
    given.write_text("".join(json.dumps(row) + "\n" for row in rows))
    hand_over(given, taken, with_responses=True)
    scored = rig.here(rig.queue(RunKind.SCORE, reward_run=run, input_file=str(taken), **changes))
    return scored, [json.loads(line) for line in (rig.folder(scored) / "scores.jsonl").read_text().splitlines()]


def test_runs_of_other_seeds_score_together(rig: Rig) -> None:
    """The mean of both models' scores, and half their distance as the spread; best-of-n by the mean."""
    one, other = trained(rig, seed=1), trained(rig, seed=2)
    rows = [{"prompt": "prompt 1", "responses": ["a", "zz", "b"]}, {"prompt": "prompt 2", "responses": ["z", "c"]}]
    apart = [scores_of(rig, run, rows)[1] for run in (one, other)]
    run, found = scores_of(rig, one, rows, beside=other.id[-6:])
    assert run.config["beside"] == other.id
    assert "stds" not in apart[0][0]
    for row, mine, theirs in zip(found, *apart, strict=True):
        pairs = list(zip(mine["scores"], theirs["scores"], strict=True))
        assert row["scores"] == pytest.approx([(a + b) / 2 for a, b in pairs])
        assert row["stds"] == pytest.approx([abs(a - b) / 2 for a, b in pairs])
        assert max(row["stds"]) > 1e-4
    assert run.result["best_of"]["3"] == pytest.approx(max(found[0]["scores"]))
    assert run.result["beside"][other.id]["responses"] == run.result["responses"] == 5
    with pytest.raises(InvalidInput, match="named twice"):
        rig.queue(RunKind.SCORE, reward_run=one, beside=one.id)
    with pytest.raises(InvalidInput, match="a finished reward run is needed"):
        rig.queue(RunKind.SCORE, reward_run=one, beside=run.id)


def test_a_row_that_one_model_refuses_has_no_scores() -> None:
    scored = {"prompt": "p", "scores": [1.0, 2.0]}
    refused = {"prompt": "p", "scores": None, "problem": "no system role"}
    assert together([scored, refused]) == refused
    assert together([scored]) is scored


def test_best_of_n_is_what_choosing_by_score_gives(rig: Rig) -> None:
    rows = [{"prompt": f"prompt {n}", "responses": ["a" * (n + 1), "zz" * (n + 1)]} for n in range(3)]
    run, found = scores_of(rig, rig.reward(), rows)
    scores = [row["scores"] for row in found]
    assert run.result["best_of"]["1"] == pytest.approx(sum(map(sum, scores)) / 6)
    assert run.result["best_of"]["2"] == pytest.approx(sum(map(max, scores)) / 3)


def test_scores_may_be_centred_by_prompt(rig: Rig) -> None:
    rows = [{"prompt": "prompt 1", "responses": ["a", "zzz", "b"]}]
    _, (plain,) = scores_of(rig, rig.reward(), rows)
    _, (centred,) = scores_of(rig, rig.reward(), rows, centre_prompts=True)
    mean = sum(plain["scores"]) / 3
    assert centred["scores"] == pytest.approx([score - mean for score in plain["scores"]])
    assert sum(centred["scores"]) == pytest.approx(0, abs=1e-10)


def test_heads_learn_from_rankings_weighed_anew(rig: Rig) -> None:
    """Two heads that start alike and see alike would end alike; several heads learn as well as one."""
    run = trained(rig, heads=5, epochs=4, learning_rate=1e-2)
    assert run.result["held_out"]["pair_accuracy"] > 0.9
    heads = load_file(rig.folder(run) / "model" / "heads.safetensors")["heads"]
    assert torch.pdist(heads).min() > 1e-2


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_the_first_layers_alone_make_a_smaller_model(family: str, rig: Rig) -> None:
    run = trained(rig, layers=1, model=rig.model(family))
    model = AutoModelForSequenceClassification.from_pretrained(rig.folder(run) / "model")
    assert model.config.num_hidden_layers == 1
    assert not (rig.folder(run) / "adapter").exists()  # it would fit no other model
    scorer = Scorer(rig.home, run.id, CPU)
    fitted = scorer.encode(ASKED, "zzab")
    wanted = plain_score(rig, run, fitted.prompt + fitted.response)
    assert scorer.score([(ASKED, "zzab")]).item() == pytest.approx(wanted, abs=1e-10)


def test_more_layers_than_there_are_is_bad_input(rig: Rig) -> None:
    ended = trained(rig, RunStatus.FAILED, layers=3)
    assert ended.error_kind is FailureKind.BAD_INPUT
    assert "has 2" in (ended.error_message or "")


def test_a_model_trained_elsewhere_is_measured_and_scored_the_same_way(rig: Rig, tmp_path: Path) -> None:
    """A stranger's classifier with a biased head: its scores less their mean, and its order as it was."""
    from tiny import tiny_config, tiny_tokenizer
    from transformers import LlamaForSequenceClassification

    torch.manual_seed(5)
    model = LlamaForSequenceClassification(tiny_config("llama", num_labels=1, initializer_range=0.2)).eval()
    model.save_pretrained(tmp_path / "theirs")
    tiny_tokenizer().save_pretrained(tmp_path / "theirs")
    run = trained(rig, model=str(tmp_path / "theirs"), train=False)
    assert run.step == 0 and "reward/loss" not in {name for _, name in rig.metrics(run)}
    scorer = Scorer(rig.home, run.id, CPU)
    fitted = scorer.encode(ASKED, "zzab")
    ids = torch.tensor([fitted.prompt + fitted.response])
    with torch.no_grad():
        theirs = model(input_ids=ids).logits.item() - run.result["shift"]
    assert scorer.score([(ASKED, "zzab")]).item() == pytest.approx(theirs, abs=1e-10)
    report = json.loads((rig.folder(run) / "report.json").read_text(encoding="utf-8"))
    assert report["model"]["rankings"] == 3


def test_a_language_model_is_no_reward_model(rig: Rig) -> None:
    ended = trained(rig, RunStatus.FAILED, train=False)
    assert ended.error_kind is FailureKind.BAD_INPUT
    assert "is no reward model" in (ended.error_message or "")


def test_the_model_card_says_what_it_is_and_how_good(rig: Rig) -> None:
    run = trained(rig)
    card = (rig.folder(run) / "model" / "README.md").read_text(encoding="utf-8")
    assert card.startswith("---\nlibrary_name: transformers")
    assert f"score = logit - ({run.result['shift']!r})" in card
    assert f"| pair accuracy | {run.result['held_out']['pair_accuracy']:.3f} |" in card
    for words in (run.id, run.snapshot_id, "length alone", *run.result["verdicts"]):
        assert str(words) in card
    assert "Nothing: the snapshot had no held-out side." not in card


# Reference facts


FACTS = "the answer is z"


@pytest.fixture(scope="module")
def with_facts_run(rig: Rig) -> Run:
    """Rankings of twelve prompts, of which every other one has reference facts."""
    project, person = make.make_project(rig.store), make.make_person(rig.store)
    for number in range(12):
        messages = ({"role": "user", "content": f"question {number}"},)
        with rig.store.begin() as tx:
            add_prompts(tx, project.id, [NewPrompt(messages, facts=FACTS if number % 2 else "")])
        task = make.make_task(rig.store, project, "abc", "zab", "zzb", prompt=f"question {number}")
        make.make_ranking(rig.store, task, person, [3, 2, 1])
    snapshot = freeze_snapshot(rig.store, OPERATOR, rig.home, project.id, SnapshotConfig(eval_share=0.3))
    return trained(rig, snapshot=snapshot, facts=True)


def test_facts_stand_behind_the_last_message() -> None:
    messages = ({"role": "system", "content": "s"}, {"role": "user", "content": "q"})
    assert with_facts(messages, "") is messages
    found = with_facts(messages, "f")
    assert [each["content"] for each in found] == ["s", "q\n\nReference facts:\nf"]
    assert messages[1]["content"] == "q"


def test_a_reward_model_reads_facts_where_it_was_trained_to(with_facts_run: Run, rig: Rig) -> None:
    (data,) = rig.events(with_facts_run, "data")
    assert data.detail["prompts_with_facts"] == 6
    knowing, other = (Scorer(rig.home, run.id, CPU) for run in (with_facts_run, rig.reward()))
    read = knowing.encoder.show(knowing.encode(ASKED, "zzab", FACTS).prompt)
    assert "prompt 3\n\nReference facts:\nthe answer is z" in read
    assert knowing.encode(ASKED, "zzab").prompt == other.encode(ASKED, "zzab", FACTS).prompt
    one, two = knowing.score([(ASKED, "zzab")] * 2, ["", FACTS]).tolist()
    assert one != two


def test_a_file_of_rows_may_bring_the_facts(with_facts_run: Run, rig: Rig) -> None:
    rows = [
        {"prompt": "prompt 3", "responses": ["zzab"]},
        {"prompt": "prompt 3", "responses": ["zzab"], "facts": FACTS},
    ]
    _, found = scores_of(rig, with_facts_run, rows)
    wanted = Scorer(rig.home, with_facts_run.id, CPU).score([(ASKED, "zzab")] * 2, ["", FACTS]).tolist()
    assert [row["scores"][0] for row in found] == pytest.approx(wanted, abs=1e-10)


@pytest.mark.parametrize("layout", ["shared", "lora"])
def test_ppo_gives_the_facts_to_the_reward_model_alone(layout: str, with_facts_run: Run, rig: Rig) -> None:
    parts = rig.parts(layout, reward=with_facts_run)
    messages = ({"role": "user", "content": "question 3"},)
    prompt, response = parts.encoder.prompt_ids(messages), parts.encoder.response_ids("zzab")
    rows = [ScoredRow(messages, prompt, response, "zzab", facts) for facts in ("", FACTS)]
    wanted = Scorer(rig.home, with_facts_run.id, CPU).score([(messages, "zzab")] * 2, ["", FACTS])
    assert parts.roles.reward_model.score(rows).tolist() == pytest.approx(wanted.tolist(), abs=1e-10)
    assert all(FACTS not in parts.encoder.show(each.ids) for each in parts.prompts)


def test_a_ppo_run_knows_its_prompts_facts(with_facts_run: Run, rig: Rig) -> None:
    run = rig.queue(
        RunKind.PPO, snapshot=snapshot_of(rig, with_facts_run), reward_run=with_facts_run, model=rig.model()
    )
    rig.claim(run)
    reporter = rig.reporter(run)
    from data.fields import from_dict
    from training.launch.config import PPOConfig
    from training.lm.models import find_model, load_encoder
    from training.ppo.run import load_prompts

    encoder = load_encoder(find_model(rig.model(), rig.home, reporter))
    prompts = load_prompts(from_dict(PPOConfig, {"sampling.max_new_tokens": 8}), reporter, encoder, 512, {})
    assert {each.facts for each in prompts} == {"", FACTS}
    from data.runs.state import finish_run

    with rig.store.begin() as tx:
        finish_run(tx, run.id, rig.look(run).epoch, RunStatus.CANCELLED)


def snapshot_of(rig: Rig, run: Run) -> Snapshot:
    with rig.store.read() as tx:
        return get_snapshot(tx, run.snapshot_id or "")


# Interop


def test_trl_trains_on_an_export_in_three_lines(rig: Rig, tmp_path: Path) -> None:
    """What docs/formats.md says, with the real library: whole pairs, and the loss of a first step near log 2."""
    from datasets import load_dataset
    from trl import RewardConfig, RewardTrainer

    export_snapshot(rig.home, rig.small_snapshot, "trl-chat", tmp_path / "out")
    words: dict[str, Any] = {"max_steps": 1, "use_cpu": True, "bf16": False, "report_to": [], "logging_steps": 1}
    # The three lines:
    pairs = load_dataset("parquet", data_dir=str(tmp_path / "out"), split="train").select_columns(
        ["prompt", "chosen", "rejected"]
    )
    trainer = RewardTrainer(rig.model(), RewardConfig(str(tmp_path / "trl"), **words), train_dataset=pairs)
    trainer.train()
    assert trainer.state.global_step == 1
    assert trainer.state.log_history[0]["loss"] == pytest.approx(0.69, abs=0.3)
    frozen = read_parquet(rig.home.snapshot_folder(rig.small_snapshot.id) / PAIRS)
    assert len(pairs) == sum(row["split"] == "train" for row in frozen) > 30
