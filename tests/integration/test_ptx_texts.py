"""PPO-ptx with its own data: what becomes of a file's texts, and that a run learns from nothing else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from rig import Rig

import training.ppo.ptx
from data.errors import InvalidConfig, InvalidInput
from data.records import RunKind
from training.launch.config import PPOConfig
from training.lm.encoding import Encoder
from training.ppo.ptx import pieces
from training.ppo.update import backward_ptx

pytestmark = [pytest.mark.float64, pytest.mark.filterwarnings("ignore::FutureWarning")]
WORDS = {"ptx_coef": 1.0, "temperature": 1.0, "iterations": 2, "token_rows": 0, "eval_prompts": 0}
ROWS: list[dict[str, Any]] = [
    {"text": "a plain text of some length"},
    {"prompt": "prompt 1", "response": "zzz"},
    {"text": ""},
    {"messages": [{"role": "user", "content": "Q"}], "response": "A"},
    {"body": "x"},
]


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("ptx"))
    yield made
    made.close()


def texts_file(folder: Path, rows: list[dict[str, Any]]) -> str:
    path = folder / "texts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.mark.parametrize("n", [2, 3, 7, 8, 9, 15, 40])
def test_every_token_of_a_text_but_its_first_is_predicted_once(n: int) -> None:
    ids = list(range(n))
    found = list(pieces(ids, 8))
    assert [token for _, counted in found for token in counted] == ids[1:]
    assert all(len(read) + len(counted) <= 8 and read == [counted[0] - 1] for read, counted in found)
    assert list(pieces([5], 8)) == []


def test_texts_and_responses_become_examples_and_the_rest_is_counted(rig: Rig, tmp_path: Path) -> None:
    path = texts_file(tmp_path, ROWS)
    parts = rig.parts("full", **WORDS, ptx_file=path)
    encoder: Encoder = parts.encoder
    text = encoder.text_ids("a plain text of some length")
    assert parts.learner.best_of == [
        (text[:1], text[1:]),
        (encoder.prompt_ids(({"role": "user", "content": "prompt 1"},)), encoder.response_ids("zzz")),
        (encoder.prompt_ids(({"role": "user", "content": "Q"},)), encoder.response_ids("A")),
    ]
    (event,) = rig.events(parts.reporter.run, "ptx_texts")
    assert event.detail == {
        "texts": 1, "pieces": 1, "responses": 2, "cut": 0, "left_out_empty": 1, "left_out_no_text": 1, "not_drawn": 0,
        "first_problem": "line 3: the text or the response is empty", "longest": 512,
        "sha256": hashlib.sha256(Path(path).read_bytes()).hexdigest(),
    }  # fmt: skip
    assert not rig.events(parts.reporter.run, "best_responses")
    rig.finish(parts.reporter.run)


def test_the_loss_is_a_language_models_on_all_tokens_that_have_a_prediction(rig: Rig, tmp_path: Path) -> None:
    parts = rig.parts("full", **WORDS, ptx_file=texts_file(tmp_path, ROWS[:1]))
    found = backward_ptx(parts.config, parts.learner, 2, 0)
    ids = torch.tensor([parts.encoder.text_ids("a plain text of some length")])
    model = parts.roles.policy.language_model
    assert found == pytest.approx(model(input_ids=ids, labels=ids).loss.item(), abs=1e-10)
    rig.finish(parts.reporter.run)


def test_a_long_text_is_learnt_in_pieces_no_longer_than_a_prompt_with_its_response(rig: Rig, tmp_path: Path) -> None:
    path = texts_file(tmp_path, [{"text": "word " * 400}, {"prompt": "long " * 100, "response": "z" * 100}])
    parts = rig.parts("full", **WORDS, ptx_file=path, max_prompt_tokens=40)
    assert {len(read) + len(counted) for read, counted in parts.learner.best_of[:-2]} == {48}  # 40 and 8 new tokens
    detail = rig.events(parts.reporter.run, "ptx_texts")[0].detail
    assert (detail["texts"], detail["responses"], detail["cut"], detail["longest"]) == (1, 1, 1, 48)
    assert detail["pieces"] == len(parts.learner.best_of) - 1 > 8
    rig.finish(parts.reporter.run)


def test_of_too_many_examples_some_are_drawn_by_the_seed(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training.ppo.ptx, "MOST", 5)
    path = texts_file(tmp_path, [{"text": f"text {number}"} for number in range(200)])
    drawn = []
    for seed in (0, 0, 1):
        parts = rig.parts("full", **WORDS, ptx_file=path, seed=seed)
        drawn.append([parts.encoder.decode(counted) for _, counted in parts.learner.best_of])
        assert rig.events(parts.reporter.run, "ptx_texts")[0].detail["not_drawn"] == 195
        rig.finish(parts.reporter.run)
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(set(drawn[0])) == 5 and drawn[0] != [f"ext {number}" for number in range(5)]


def test_a_run_keeps_the_file_and_learns_from_it_again_after_it_is_gone(rig: Rig, tmp_path: Path) -> None:
    path = Path(texts_file(tmp_path, ROWS))
    run = rig.queue_ppo("full", **WORDS, ptx_file=str(path))
    content = path.read_bytes()
    done = rig.here(run)
    assert (rig.folder(done) / "ptx.jsonl").read_bytes() == content
    own = {step: value for (step, name), value in rig.metrics(done).items() if name == "ptx/loss"}
    plain = rig.here(rig.queue_ppo("full", **WORDS))
    others = {step: value for (step, name), value in rig.metrics(plain).items() if name == "ptx/loss"}
    assert own.keys() == others.keys() == {1, 2} and own != others
    again = rig.queue_ppo("full", **WORDS, ptx_file=str(path))
    rig.folder(again).mkdir(parents=True)
    (rig.folder(again) / "ptx.jsonl").write_bytes(content)
    path.write_text('{"text": "something else"}\n')
    found = rig.metrics(rig.here(again))
    assert {step: found[step, "ptx/loss"] for step in (1, 2)} == own


def test_what_can_not_be_learnt_from_is_refused_before_the_run(rig: Rig, tmp_path: Path) -> None:
    empty, useless = tmp_path / "empty.jsonl", tmp_path / "useless.jsonl"
    empty.touch()
    useless.write_text('{"text": " "}\n{"text": ""}\n')
    expected = {
        str(empty): "empty.jsonl: the file is empty",
        str(useless): r"no row can be used as a text \(2 empty\); line 1: the text is empty",
        str(tmp_path / "gone.jsonl"): "there is no such file",
        str(tmp_path / "a.txt"): "unknown kind of file",
    }
    for path, words in expected.items():
        for kind in (RunKind.PPO, RunKind.CHECK):
            with pytest.raises(InvalidInput, match=f"ptx_file = '{path}': .*{words}"):
                rig.queue(kind, snapshot=rig.small_snapshot, reward_run=rig.reward(), ptx_coef=1.0, ptx_file=path)
    with pytest.raises(InvalidConfig, match="ptx_file is learnt from only with ptx_coef above 0"):
        PPOConfig(ptx_file="texts.jsonl")


def test_a_check_reads_the_file_and_keeps_no_copy(rig: Rig, tmp_path: Path) -> None:
    words = {"adapter": "full", "model": rig.model(), "prompts_per_iteration": 4, "max_new_tokens": 8, **WORDS}
    run = rig.queue(
        RunKind.CHECK, snapshot=rig.small_snapshot, reward_run=rig.reward("full"), **words,
        ptx_file=texts_file(tmp_path, ROWS),
    )  # fmt: skip
    done = rig.here(run)
    assert done.result["ok"], done.result["checks"]
    assert rig.events(done, "ptx_texts")[0].detail["left_out_empty"] == 1
    assert not list(rig.folder(done).glob("ptx*"))
