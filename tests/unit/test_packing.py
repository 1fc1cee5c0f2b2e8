"""One sequence for a prompt with all of its responses: the same scores and gradients as one for each of them."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from tiny import tiny_config
from torch import Tensor

from training.lm.block_attention import NAME, attend, attention_in_blocks
from training.lm.dataset import EncodedGroup
from training.lm.packing import cut_in_micro_batches, pack_rows, rows_of
from training.lm.scorer import group_scores, score_groups
from training.lm.sharing import check_shared_prompts

pytestmark = pytest.mark.float64

PAD = 2


def classifier(family: str, **changes: Any) -> Any:
    from transformers import AutoModelForSequenceClassification

    torch.manual_seed(0)
    config = tiny_config(family, num_labels=1, initializer_range=0.2, **changes)  # so wide that attention matters
    return AutoModelForSequenceClassification.from_config(config).eval()


def ranking(prompt: list[int], *responses: list[int], weight: float = 1.0) -> EncodedGroup:
    sequences = [prompt + response for response in responses]
    n = len(responses)
    return EncodedGroup("r", "p", sequences, [len(prompt)] * n, list(range(1, n + 1)), weight)


def some_rankings(seed: int = 0, n: int = 5) -> list[EncodedGroup]:
    rng = random.Random(seed)

    def ids(low: int, high: int) -> list[int]:
        return [rng.randrange(3, 260) for _ in range(rng.randint(low, high))]

    return [ranking(ids(1, 40), *(ids(1, 30) for _ in range(rng.randint(2, 6)))) for _ in range(n)]


def gradients(model: Any, groups: list[EncodedGroup], *, is_shared: bool) -> tuple[Tensor, dict[str, Tensor]]:
    model.zero_grad()
    scores = group_scores(model, groups, PAD, is_shared=is_shared)
    (scores * torch.linspace(-1, 1, len(scores))).sum().backward()
    return scores.detach(), {
        name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None
    }


def test_a_row_is_the_prompt_once_and_every_response_at_its_end() -> None:
    groups = [ranking([5, 6, 7], [10, 11], [12]), ranking([8], [20])]
    packed = pack_rows(rows_of(groups))
    assert packed.ids.tolist() == [[5, 6, 7, 10, 11, 12, 8, 20]]
    assert packed.positions.tolist() == [[0, 1, 2, 3, 4, 3, 0, 1]]
    assert (packed.prompt_ends.tolist(), packed.ends.tolist()) == ([2, 2, 6], [4, 5, 7])
    blocks = packed.blocks
    assert (blocks.prompts.tolist(), blocks.owners.tolist()) == ([[0, 1, 2], [6, 0, 0]], [0, 0, 1])
    assert blocks.responses.tolist() == [[3, 4], [5, 0], [7, 0]]
    assert blocks.home.tolist() == [0, 1, 2, 6, 7, 8, 3, 10]  # of two times three, then three times two
    assert blocks.seen[:, 0].int().tolist() == [
        [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]],
        [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]],
        [[1, 0, 0, 1, 0], [1, 0, 0, 1, 1]],
    ]
    assert bool(blocks.seen.any(-1).all())  # no softmax over nothing, also in padding


def test_attention_reads_the_blocks_and_nothing_else() -> None:
    """Against one softmax over a mask written out; the model's own setting is back afterwards."""
    rows = rows_of([ranking([5, 6, 7], [10, 11], [12]), ranking([8], [20, 21, 22])])
    packed = pack_rows(rows)
    segments = [(0, 0)] * 3 + [(0, 1)] * 2 + [(0, 2)] + [(1, 0)] + [(1, 1)] * 3
    mask = torch.tensor([
        [j <= i and here[0] == there[0] and there[1] in (0, here[1]) for j, there in enumerate(segments)]
        for i, here in enumerate(segments)
    ])  # fmt: skip
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, 4, len(segments), 8, dtype=torch.float64) for _ in range(3))
    model = classifier("llama")
    with attention_in_blocks(model, packed.blocks):
        assert model.config._attn_implementation == NAME
        found, _ = attend(torch.nn.Module(), query, key, value, None)
    assert model.config._attn_implementation == "sdpa"
    weights = (query @ key.mT / 8**0.5).masked_fill(~mask, -torch.inf).softmax(-1)
    assert (found - (weights @ value).transpose(1, 2)).abs().max() < 1e-12


@pytest.mark.parametrize("words", [{"position_bias": torch.zeros(1)}, {"attention_mask": torch.ones(1, 1, 3, 3)}])
def test_attention_that_needs_more_than_blocks_is_refused(words: dict[str, Any]) -> None:
    heads = [torch.zeros(1, 1, 3, 2) for _ in range(3)]
    blocks = pack_rows(rows_of([ranking([5, 6], [10])])).blocks
    with attention_in_blocks(classifier("llama"), blocks), pytest.raises(ValueError, match="more than blocks"):
        attend(torch.nn.Module(), *heads, **({"attention_mask": None} | words))
    with pytest.raises(ValueError, match="more than blocks"):  # nobody said which
        attend(torch.nn.Module(), *heads, None)


def test_responses_whose_prompts_were_cut_apart_have_rows_of_their_own() -> None:
    group = EncodedGroup("r", "p", [[5, 6, 10], [6, 11, 12], [5, 6, 13]], [2, 1, 2], [1, 2, 3], 1.0)
    rows = rows_of([group])
    assert [(row.prompt, row.responses, row.places) for row in rows] == [
        ([5, 6], [[10], [13]], [0, 2]),
        ([6], [[11, 12]], [1]),
    ]
    model = classifier("llama")
    shared, separate = (group_scores(model, [group], PAD, is_shared=each) for each in (True, False))
    assert shared.tolist() == pytest.approx(separate.tolist(), abs=1e-10)


@pytest.mark.parametrize("family", ["llama", "qwen2", "gpt2"])
def test_a_shared_prompt_changes_no_score_and_no_gradient(family: str) -> None:
    """Every weight's gradient, over ragged rankings in one batch; GPT-2 has absolute positions."""
    model, groups = classifier(family), some_rankings()
    (separate, wanted), (shared, found) = (gradients(model, groups, is_shared=each) for each in (False, True))
    assert separate.std() > 1e-3
    assert shared.tolist() == pytest.approx(separate.tolist(), abs=1e-10)
    assert found.keys() == wanted.keys()
    for name, gradient in wanted.items():
        assert (found[name] - gradient).abs().max() < 1e-10, name
        assert gradient.abs().max() > 1e-3 or "bias" in name, name
    assert check_shared_prompts(model, groups, PAD, 512).holds


def test_the_check_leaves_no_gradient_and_no_mode_behind() -> None:
    model = classifier("llama").train()
    found = check_shared_prompts(model, some_rankings(), PAD, 512)
    assert (found.reason, model.training) == ("", True)
    assert 0 <= found.output_difference < 1e-10 and 0 <= found.gradient_difference < 1e-10
    assert all(each.grad is None for each in model.parameters())


def test_a_model_that_can_not_share_says_why() -> None:
    groups = some_rankings()
    assert "'eager'" in check_shared_prompts(classifier("llama", attn_implementation="eager"), groups, PAD, 512).reason
    windowed = classifier("gemma2")
    windowed.config._attn_implementation = "sdpa"
    assert "window of 16 tokens" in check_shared_prompts(windowed, groups, PAD, 512).reason


def test_a_model_that_ignores_positions_is_found_out() -> None:
    class Forgetful(torch.nn.Module):
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, **words: Any) -> Any:
            return self.inner(**{name: value for name, value in words.items() if name != "position_ids"})

    model = classifier("llama")
    model.model = Forgetful(model.model)
    found = check_shared_prompts(model, some_rankings(), PAD, 512)
    assert found.reason == "the model gives other numbers that way"
    assert found.output_difference > 1e-3


def test_a_model_that_takes_no_positions_is_found_out() -> None:
    model = classifier("llama")
    inner = model.model

    class Narrow(torch.nn.Module):
        def forward(self, input_ids: Tensor, attention_mask: Tensor, use_cache: bool) -> Any:
            return inner(input_ids=input_ids, attention_mask=attention_mask, use_cache=use_cache)

    model.model = Narrow()
    model.add_module("kept", inner)
    assert check_shared_prompts(model, some_rankings(), PAD, 512).reason.startswith("the model can't do it:")


@pytest.mark.float32
def test_half_precision_weights_are_asked_with_a_wider_limit() -> None:
    model = classifier("llama").to(torch.bfloat16)
    model.score.float()
    found = check_shared_prompts(model, some_rankings(), PAD, 512)
    assert found.holds
    assert found.gradient_difference > 1e-4


@pytest.mark.parametrize("is_shared", [True, False])
def test_lots_keep_within_the_budget_and_lose_nothing(is_shared: bool) -> None:
    groups = some_rankings(n=40)
    for budget in (1, 100, 300, 5000):
        lots = cut_in_micro_batches(groups, budget, is_shared=is_shared)
        assert sorted(place for lot in lots for place in lot) == list(range(40))
        for lot in lots:
            chosen = [groups[place] for place in lot]
            if is_shared:
                size = pack_rows(rows_of(chosen)).ids.numel()
            else:
                rows = [each for group in chosen for each in group.sequences]
                size = len(rows) * max(map(len, rows))
            assert size <= budget or len(lot) == 1
    assert len(cut_in_micro_batches(groups, 10**6, is_shared=is_shared)) == 1


def test_lots_are_of_like_length_and_scores_come_back_in_order() -> None:
    model, groups = classifier("llama"), some_rankings(n=12)
    from training.lm.models import Machine

    machine = Machine(torch.device("cpu"), is_bf16=False)
    wanted = [group_scores(model, [group], PAD, is_shared=False).tolist() for group in groups]
    for budget, is_shared in ((150, True), (4096, True), (150, False)):
        found = score_groups(model, groups, PAD, machine, budget, is_shared=is_shared)
        assert [each.tolist() for each in found] == [pytest.approx(each, abs=1e-10) for each in wanted]
    lots = cut_in_micro_batches(groups, 150, is_shared=True)
    longest = [max(rows_of([groups[place]])[0].n_tokens for place in lot) for lot in lots]
    assert longest == sorted(longest)


def test_tokens_grow_by_one_response_for_each() -> None:
    sizes = [pack_rows(rows_of([ranking([5] * 30, *[[7] * 10 for _ in range(k)])])).ids.numel() for k in (2, 4, 12)]
    assert sizes == [50, 70, 150]
