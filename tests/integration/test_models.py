"""Loading and saving models of several families: what is refused, what is changed, what must come back the same."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from rig import Rig
from safetensors.torch import load_file, save_file
from tiny import END, FAMILIES, save_tiny_model, tiny_language_model, tiny_tokenizer

from data.errors import InvalidInput
from data.records import RunKind
from training.jobs.reporter import Reporter
from training.launch.config import MachineOptions, SamplingOptions
from training.lm.encoding import Encoder
from training.lm.models import (
    ModelSource,
    context_of,
    find_model,
    fitting_length,
    load_classifier,
    load_encoder,
    load_language_model,
    longest_prompt,
    save_model,
    set_up_machine,
    weights_hash,
)
from training.lm.scorer import pad_right, pooled_scores

pytestmark = pytest.mark.float64

IDS = torch.tensor([[7, 8, 9, 10, 11, END]])


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("models"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def reporter(rig: Rig) -> Reporter:
    run = rig.queue(RunKind.SAMPLE, project=rig.project(n_prompts=1), model=rig.model())
    rig.claim(run)
    return rig.reporter(run)


def source_of(folder: str | Path) -> ModelSource:
    return ModelSource("given", str(folder), weights_hash(Path(folder)))


@pytest.mark.parametrize("family", FAMILIES)
def test_dropout_is_off_everywhere_even_while_training(family: str, tmp_path: Path) -> None:
    names = ("attn_pdrop", "resid_pdrop", "embd_pdrop") if family == "gpt2" else ("attention_dropout",)
    rates = dict.fromkeys(names, 0.5)
    save_tiny_model(tmp_path, family=family, **rates)
    model = load_language_model(source_of(tmp_path), torch.float32)
    assert not model.training
    still = model(input_ids=IDS).logits
    assert torch.equal(model.train()(input_ids=IDS).logits, still)
    classifier = load_classifier(source_of(tmp_path), torch.float32, pad_id=0)
    assert torch.equal(*(pooled_scores(classifier.train(mode), IDS, IDS > 0) for mode in (True, False)))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_new_head_is_drawn_narrow_enough_and_has_no_bias(family: str, tmp_path: Path) -> None:
    save_tiny_model(tmp_path, family=family, **({"n_embd": 512} if family == "gpt2" else {"hidden_size": 512}))
    torch.manual_seed(0)
    head = load_classifier(source_of(tmp_path), torch.float32, pad_id=0).score
    assert head.bias is None
    assert head.weight.shape == (1, 512)
    # 512 draws: the standard error of their spread is 3 %; 12 % is four of them. transformers' own 0.02 is 45 % away.
    assert head.weight.std().item() == pytest.approx(1 / math.sqrt(513), rel=0.12)


def test_a_head_that_was_trained_is_kept(tmp_path: Path) -> None:
    save_tiny_model(tmp_path / "lm")
    model = load_classifier(source_of(tmp_path / "lm"), torch.float32, pad_id=0)
    save_model(model, tiny_tokenizer(), tmp_path / "reward")
    again = load_classifier(source_of(tmp_path / "reward"), torch.float32)
    assert torch.equal(again.score.weight, model.score.weight)
    assert torch.equal(pooled_scores(again, IDS, IDS > 0), pooled_scores(model, IDS, IDS > 0))


@pytest.mark.float32
def test_the_head_computes_in_float32_also_in_a_half_precision_model(tmp_path: Path) -> None:
    save_tiny_model(tmp_path)
    model = load_classifier(source_of(tmp_path), torch.bfloat16, pad_id=0)
    assert model.dtype == torch.bfloat16
    assert model.score.weight.dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        scores = pooled_scores(model, IDS, IDS > 0)
    assert scores.dtype == torch.float32
    assert scores.item() != scores.to(torch.bfloat16).item()  # it is finer than bf16 could hold


@pytest.mark.parametrize("family", FAMILIES)
def test_the_score_is_read_at_the_last_attended_token_whatever_the_padding(family: str, tmp_path: Path) -> None:
    save_tiny_model(tmp_path, family=family)
    model = load_classifier(source_of(tmp_path), torch.float32, pad_id=0)
    texts = [[7, 8, 9, END], [30, END], [40, 41, 42, 43, 44, 45, END], [50, END, END]]
    alone = [
        pooled_scores(model, torch.tensor([text]), torch.ones(1, len(text), dtype=torch.bool)).item() for text in texts
    ]
    for pad_id in (0, END, 99):
        ids, attention = pad_right(texts, pad_id)
        assert pooled_scores(model, ids, attention).tolist() == pytest.approx(alone, abs=1e-10)
    with pytest.raises(ValueError, match="without a token"):
        pooled_scores(model, torch.tensor([[0, 0]]), torch.tensor([[0, 0]]))


@pytest.mark.parametrize("family", FAMILIES)
def test_plain_transformers_scores_alike_where_padding_is_a_token_of_its_own(family: str, tmp_path: Path) -> None:
    save_tiny_model(tmp_path / "lm", family=family, pad="<|end|>")
    encoder = load_encoder(source_of(tmp_path / "lm"))
    model = load_classifier(source_of(tmp_path / "lm"), torch.float32, encoder.pad_id)
    texts = [[7, 8, 9, END], [40, 41, 42, 43, 44, 45, END]]
    ids, attention = pad_right(texts, encoder.pad_id)
    ours = pooled_scores(model, ids, attention)
    theirs = model(input_ids=ids, attention_mask=attention).logits.squeeze(-1)
    assert ours.tolist() == pytest.approx(theirs.tolist(), abs=1e-10)


def test_a_folder_that_is_not_there_is_named(rig: Rig, reporter: Reporter) -> None:
    for name in ("/no/such/folder", "./nowhere", "~/nowhere-at-all"):
        with pytest.raises(InvalidInput, match="there is no folder"):
            find_model(name, rig.home, reporter)
    with pytest.raises(InvalidInput, match=r"'run:ABC': there is no folder"):
        find_model("run:ABC", rig.home, reporter)


def test_a_hub_name_that_can_not_be_had_is_one_clear_error(rig: Rig, reporter: Reporter) -> None:
    with pytest.raises(InvalidInput, match=r"model 'nobody/nothing' can't be loaded: .*; name a folder"):
        find_model("nobody/nothing", rig.home, reporter)


def test_weights_that_need_pickle_are_refused(rig: Rig, reporter: Reporter, tmp_path: Path) -> None:
    save_tiny_model(tmp_path)
    torch.save(tiny_language_model().state_dict(), tmp_path / "pytorch_model.bin")
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(InvalidInput, match=r"holds no config.json with .safetensors weights"):
        find_model(str(tmp_path), rig.home, reporter)
    with pytest.raises(InvalidInput, match="safetensors"):
        load_language_model(source_of(tmp_path), torch.float32)


@pytest.mark.parametrize("loader", [load_language_model, load_classifier])
def test_code_in_a_models_folder_is_never_run(loader: Any, rig: Rig, reporter: Reporter, tmp_path: Path) -> None:
    folder, trace = tmp_path / "model", tmp_path / "it-ran"
    save_tiny_model(folder)
    (folder / "modeling_evil.py").write_text(f"open({str(trace)!r}, 'w').close()\nclass Evil: pass\n")
    config = json.loads((folder / "config.json").read_text())
    names = ("AutoConfig", "AutoModelForCausalLM", "AutoModelForSequenceClassification")
    config |= {"model_type": "evil", "auto_map": dict.fromkeys(names, "modeling_evil.Evil")}
    (folder / "config.json").write_text(json.dumps(config))
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text())
    tokenizer["auto_map"] = {"AutoTokenizer": ["modeling_evil.Evil", None]}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    source = find_model(str(folder), rig.home, reporter)
    with pytest.raises(InvalidInput, match="can't be loaded"):
        loader(source, torch.float32)
    load_encoder(source)  # a tokenizer's code is passed over
    assert not trace.exists()


def test_broken_weights_are_one_clear_error(tmp_path: Path) -> None:
    save_tiny_model(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\x08\x00\x00\x00\x00\x00\x00\x00not json")
    with pytest.raises(InvalidInput, match=r"model 'given' can't be loaded"):
        load_language_model(source_of(tmp_path), torch.float32)


LAYER = "model.layers.1.mlp.up_proj.weight"


@pytest.mark.parametrize("load", [load_language_model, load_classifier])
@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        ("surplus", r"1 weights find no place, such as 'model\.layers\.1\.mlp\.more'"),
        ("missing", rf"1 weights are missing, such as '{re.escape(LAYER)}'"),
        ("both", r"1 weights find no place, .*, 1 weights are missing"),
        ("shape", "can't be loaded: .*mismatch"),
    ],
)
def test_a_weight_that_finds_no_place_is_an_error(load: Any, spoil: str, reason: str, tmp_path: Path) -> None:
    """Else it would be left out, or drawn anew, with a line in the log."""
    path = save_tiny_model(tmp_path / "llama", tie_word_embeddings=False) / "model.safetensors"
    weights = load_file(path)
    if spoil in ("missing", "both"):
        del weights[LAYER]
    if spoil in ("surplus", "both"):
        weights["model.layers.1.mlp.more"] = torch.zeros(3)
    if spoil == "shape":
        weights[LAYER] = weights[LAYER][:5].clone()
    save_file(weights, path, metadata={"format": "pt"})
    with pytest.raises(InvalidInput, match=reason):
        load(source_of(path.parent), torch.float32)


def test_a_model_of_another_kind_is_not_taken_for_one(tmp_path: Path) -> None:
    """A reward model has no head for words; a model with another head keeps it for itself."""
    path = save_tiny_model(tmp_path / "llama", tie_word_embeddings=False)
    classifier = load_classifier(source_of(path), torch.float32)
    save_model(classifier, tiny_tokenizer(), tmp_path / "reward")
    with pytest.raises(InvalidInput, match=r"1 weights find no place, such as 'score.weight', 1 weights are missing"):
        load_language_model(source_of(tmp_path / "reward"), torch.float32)
    weights = load_file(tmp_path / "reward" / "model.safetensors")
    del weights["score.weight"]
    save_file(weights, tmp_path / "reward" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InvalidInput, match=r"1 weights are missing, such as 'score.weight'"):
        load_classifier(source_of(tmp_path / "reward"), torch.float32)
    other = load_file(path / "model.safetensors") | {"v_head.weight": torch.zeros(1, 32)}
    save_file(other, path / "model.safetensors", metadata={"format": "pt"})
    for load in (load_classifier, load_language_model):
        with pytest.raises(InvalidInput, match=r"1 weights find no place, such as 'v_head.weight'"):
            load(source_of(path), torch.float32)


def test_the_first_layers_leave_the_others_behind_and_nothing_else(tmp_path: Path) -> None:
    path = save_tiny_model(tmp_path / "llama", tie_word_embeddings=False) / "model.safetensors"
    weights = load_file(path)
    first = load_classifier(source_of(path.parent), torch.float32, layers=1)
    assert torch.equal(first.model.layers[0].mlp.up_proj.weight, weights[LAYER.replace("1", "0")])
    save_file(weights | {"model.layers.0.mlp.more": torch.zeros(3)}, path, metadata={"format": "pt"})
    with pytest.raises(InvalidInput, match=r"1 weights find no place, such as 'model.layers.0.mlp.more'"):
        load_classifier(source_of(path.parent), torch.float32, layers=1)


def test_another_weight_or_setting_makes_another_revision(tmp_path: Path) -> None:
    one, two = (save_tiny_model(tmp_path / str(seed), seed=seed) for seed in (0, 1))
    same = save_tiny_model(tmp_path / "same", seed=0)
    assert weights_hash(one) == weights_hash(same) != weights_hash(two)
    config = json.loads((same / "config.json").read_text())
    (same / "config.json").write_text(json.dumps(config | {"rms_norm_eps": 1e-3}))
    assert weights_hash(same) != weights_hash(one)


def test_a_model_is_saved_whole_or_not_at_all(tmp_path: Path) -> None:
    save_tiny_model(tmp_path / "lm")
    model, folder = load_language_model(source_of(tmp_path / "lm"), torch.float32), tmp_path / "out"
    save_model(model, tiny_tokenizer(), folder)
    before = weights_hash(folder)

    class Broken:
        def save_pretrained(self, _folder: Path) -> None:
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        save_model(tiny_language_model(seed=5), Broken(), folder)
    assert weights_hash(folder) == before
    save_model(tiny_language_model(seed=5), tiny_tokenizer(), folder)
    assert weights_hash(folder) != before
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("family", FAMILIES)
def test_lengths_stay_within_what_the_model_reads(family: str, rig: Rig, reporter: Reporter) -> None:
    source = source_of(rig.model(family))
    assert context_of(source) == 512
    assert fitting_length(100, source, reporter) == 100
    assert fitting_length(1024, source, reporter) == 512
    assert longest_prompt(SamplingOptions(max_new_tokens=500), 512) == 12
    assert longest_prompt(SamplingOptions(max_new_tokens=100, max_prompt_tokens=50), 512) == 50
    with pytest.raises(InvalidInput, match=r"max_new_tokens = 512 leaves no room .* reads 512 tokens"):
        longest_prompt(SamplingOptions(max_new_tokens=512), 512)


def test_a_lowered_length_is_recorded(rig: Rig, reporter: Reporter) -> None:
    fitting_length(2048, source_of(rig.model()), reporter)
    assert rig.events(reporter.run, "max_length_lowered")[-1].detail == {"asked": 2048, "model_reads": 512}


def test_the_end_tokens_of_the_models_settings_count(tmp_path: Path) -> None:
    save_tiny_model(tmp_path)
    (tmp_path / "generation_config.json").unlink()
    assert load_encoder(source_of(tmp_path)).stop_ids == Encoder(tiny_tokenizer()).stop_ids == {END}


def test_a_device_that_is_not_there_is_refused() -> None:
    missing = "cuda" if not torch.cuda.is_available() else "mps"
    with pytest.raises(InvalidInput, match="this machine has none"):
        set_up_machine(MachineOptions(device=missing))


def test_precision_follows_the_device_unless_it_is_asked_for() -> None:
    assert not set_up_machine(MachineOptions(device="cpu", threads=1)).is_bf16
    assert set_up_machine(MachineOptions(device="cpu", precision="bf16", threads=1)).frozen_dtype == torch.bfloat16
    assert torch.get_num_threads() == 1
