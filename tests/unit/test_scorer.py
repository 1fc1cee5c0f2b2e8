"""The one way to score a text: the zero taken off, cut as in training, and the same in any batch."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict

import pytest
import torch
from rig import Rig
from transformers import AutoModelForSequenceClassification

from data.errors import InvalidInput
from data.records import Messages
from training.lm.models import Machine
from training.lm.scorer import RewardInfo, Scorer, pad_right, read_reward_info

pytestmark = [pytest.mark.float64, pytest.mark.filterwarnings("ignore::FutureWarning")]
CPU = Machine(torch.device("cpu"), is_bf16=False)
ASKED: Messages = ({"role": "user", "content": "prompt 3"},)


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("scorer"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def scorer(rig: Rig) -> Scorer:
    return Scorer(rig.home, rig.reward("lora").id, CPU)


def test_a_score_is_the_models_own_less_its_zero(scorer: Scorer, rig: Rig) -> None:
    model = AutoModelForSequenceClassification.from_pretrained(rig.folder(rig.reward("lora")) / "model").eval()
    fitted = scorer.encode(ASKED, "zzab")
    with torch.no_grad():
        raw = model(input_ids=torch.tensor([fitted.prompt + fitted.response])).logits.item()
    assert scorer.score([(ASKED, "zzab")]).item() == pytest.approx(raw - scorer.info.shift, abs=1e-10)
    assert scorer.info.shift == pytest.approx(rig.reward("lora").result["shift"])
    assert abs(scorer.info.shift) > 1e-3


def test_order_and_batches_change_no_score(scorer: Scorer, rig: Rig) -> None:
    texts = [(ASKED, "z" * n) for n in (1, 30, 2, 9, 4, 0, 17)]
    wanted = torch.cat([scorer.score([each]) for each in texts])
    for size in (1, 2, 16):
        other = Scorer(rig.home, rig.reward("lora").id, CPU, batch_size=size)
        assert torch.allclose(other.score(texts), wanted, atol=1e-10, rtol=0)
        assert torch.allclose(other.score(texts[::-1]), wanted.flip(0), atol=1e-10, rtol=0)


def test_nothing_and_an_empty_response_have_their_scores(scorer: Scorer) -> None:
    assert scorer.score([]).shape == (0,)
    assert scorer.encode(ASKED, "").response == [scorer.encoder.eos_id]
    assert torch.isfinite(scorer.score([(ASKED, "")])).all()


def test_a_long_text_is_cut_as_in_training(rig: Rig) -> None:
    scorer = Scorer(rig.home, rig.reward("lora").id, CPU)
    scorer.info = RewardInfo(**(asdict(scorer.info) | {"max_length": 20}))
    fitted = scorer.encode(ASKED, "z" * 12)
    assert len(fitted.prompt) + len(fitted.response) == 20
    assert fitted.is_prompt_cut and not fitted.is_response_cut
    cut = scorer.score_ids([fitted.prompt + fitted.response])
    assert torch.equal(scorer.score([(ASKED, "z" * 12)]), cut)
    assert torch.equal(scorer.score_ids([[9, 9, 9, *fitted.prompt, *fitted.response]]), cut)


def test_what_lies_beside_the_model_says_what_it_is(scorer: Scorer, rig: Rig) -> None:
    info = read_reward_info(rig.folder(rig.reward("lora")))
    assert info == scorer.info
    assert info.template_hash == scorer.encoder.template_hash
    assert info.vocabulary_hash == scorer.encoder.vocabulary_hash
    assert (info.has_adapter, info.n, info.max_length) == (True, 36, 512)
    assert scorer.adapter_folder is not None and (scorer.adapter_folder / "adapter_model.safetensors").is_file()
    assert Scorer(rig.home, rig.reward("full").id, CPU).adapter_folder is None


def test_a_model_without_its_zero_is_refused(rig: Rig) -> None:
    reward = rig.reward("full")
    broken = rig.home.run_folder("broken")
    shutil.copytree(rig.folder(reward), broken)
    (broken / "model" / "reward_config.json").unlink()
    with pytest.raises(InvalidInput, match=r"reward_config.json is missing: the reward model's zero is not known"):
        Scorer(rig.home, "broken", CPU)
    with pytest.raises(InvalidInput, match="is missing"):
        Scorer(rig.home, "no such run", CPU)


def test_a_file_of_another_make_is_refused_in_words(rig: Rig) -> None:
    folder = rig.home.run_folder("other-make")
    (folder / "model").mkdir(parents=True)
    for content in ("{", json.dumps({"shift": 1.0}), json.dumps([1])):
        (folder / "model" / "reward_config.json").write_text(content)
        with pytest.raises(InvalidInput, match=r"reward_config.json can't be used"):
            read_reward_info(folder)


def test_padding_is_on_the_right_and_not_attended() -> None:
    ids, attention = pad_right([[5], [6, 7, 8]], 0)
    assert ids.tolist() == [[5, 0, 0], [6, 7, 8]]
    assert attention.tolist() == [[True, False, False], [True, True, True]]
