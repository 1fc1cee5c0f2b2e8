"""Sampling: the distribution is the model's own at the temperature, and nothing else about a batch matters.

What is expected comes from a plain forward pass of transformers over the whole text, without a cache or padding.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from scipy.stats import chisquare
from tiny import tiny_language_model
from torch import Tensor

from data.fields import from_dict
from training.jobs.reporter import Cancelled, NotFinite
from training.launch.config import SampleConfig
from training.lm.generation import Generated, choose_tokens, generate, random_numbers
from training.lm.models import Machine

CPU = Machine(torch.device("cpu"), is_bf16=False)
FAMILIES = ("llama", "qwen2", "gpt2", "gemma2", "cohere")
PROMPTS = [[7, 8, 9, 10, 11, 12, 13], [200], [30, 31, 32], [7, 8, 9, 10, 11, 12, 14]]
STOPS = frozenset(range(0, 264, 9))
FALSE_ALARM = 1e-6  # a test on a true null fails for one seed in a million; the seeds here stand still


def peaked_model(family: str = "llama", **changes: Any) -> Any:
    """A model whose next-token distributions are far from flat and depend on what came before."""
    model = tiny_language_model(3, family, tie_word_embeddings=False, initializer_range=0.3, **changes)
    model.generation_config.update(temperature=0.1, top_k=1, top_p=0.2, repetition_penalty=5.0, min_new_tokens=9)
    return model


def draw(model: Any, prompts: list[list[int]], keys: list[str], n: int = 1, **changes: Any) -> list[Generated]:
    stops = changes.pop("stop_ids", STOPS)
    check = changes.pop("check", lambda: None)
    config = from_dict(SampleConfig, {"max_new_tokens": 12, "temperature": 0.8} | changes)
    uniform = random_numbers(config.machine.seed, keys, config.sampling.max_new_tokens)
    return generate(model, prompts, n, config.sampling, uniform, stop_ids=stops, pad_id=0, machine=CPU, check=check)


@torch.no_grad()
def plain_loop(model: Any, prompt: list[int], key: str, **changes: Any) -> list[int]:
    """One token after the other, the whole text read anew for each."""
    config = from_dict(SampleConfig, {"max_new_tokens": 12, "temperature": 0.8} | changes)
    numbers, ids = random_numbers(config.machine.seed, [key], config.sampling.max_new_tokens)[0], list(prompt)
    for t in range(config.sampling.max_new_tokens):
        logits = model(input_ids=torch.tensor([ids])).logits[:, -1]
        token = int(
            choose_tokens(
                logits, numbers[t : t + 1], config.sampling.temperature, config.sampling.top_k, config.sampling.top_p
            )
        )
        ids.append(token)
        if token in STOPS:
            break
    return ids[len(prompt) :]


@torch.no_grad()
def next_distribution(model: Any, ids: list[int], temperature: float) -> Tensor:
    logits: Tensor = model(input_ids=torch.tensor([ids])).logits[0, -1].double()
    return torch.softmax(logits / temperature, dim=0)


def assert_drawn_from(tokens: list[int], probabilities: Tensor) -> None:
    """Chi-square, with rare tokens (fewer than 5 expected) in one bin."""
    counts = torch.bincount(torch.tensor(tokens), minlength=len(probabilities)).double()
    expected = probabilities * len(tokens)
    common = expected >= 5
    rare = bool((~common).any())
    observed = counts[common].tolist() + [counts[~common].sum().item()] * rare
    wanted = expected[common].tolist() + [expected[~common].sum().item()] * rare
    assert len(wanted) >= 4, "the distribution is too peaked for this test to say anything"
    assert chisquare(observed, wanted, sum_check=False).pvalue > FALSE_ALARM


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_tokens_come_from_the_whole_distribution_at_the_temperature(temperature: float) -> None:
    model = peaked_model()
    prompt, n = PROMPTS[0], 20_000
    keys = [str(place) for place in range(n)]
    drawn = draw(model, [prompt], keys, n, max_new_tokens=2, temperature=temperature, stop_ids=frozenset())
    firsts = [each.ids[0] for each in drawn]
    assert_drawn_from(firsts, next_distribution(model, prompt, temperature))
    frequent, count = Counter(firsts).most_common(1)[0]
    assert count > 500
    seconds = [each.ids[1] for each in drawn if each.ids[0] == frequent]
    assert_drawn_from(seconds, next_distribution(model, [*prompt, frequent], temperature))


def test_the_chi_square_above_sees_a_wrong_temperature() -> None:
    probabilities = torch.softmax(torch.arange(8.0).double(), 0)
    uniform = random_numbers(0, ["x"], 20_000)[0]
    tokens = choose_tokens(probabilities.log().float().expand(20_000, 8), uniform, 1.1).tolist()
    with pytest.raises(AssertionError):
        assert_drawn_from(tokens, probabilities)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_response_is_what_the_model_alone_would_say(family: str) -> None:
    """Left padding, the shared prompt, the cache and dropped rows change nothing, also with absolute positions."""
    model = peaked_model(family)
    keys = [f"{prompt}:{place}" for prompt in range(len(PROMPTS)) for place in range(3)]
    together = draw(model, PROMPTS, keys, 3)
    lengths = {len(each.ids) for each in together}
    assert len(lengths) > 2, "responses have to end at different times for this test to say anything"
    for place, each in enumerate(together):
        assert each.ids == plain_loop(model, PROMPTS[place // 3], keys[place])
        assert each.has_ended == (each.ids[-1] in STOPS)
        assert each.finish_reason == ("eos" if each.has_ended else "length")


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_who_else_is_in_the_batch_does_not_matter(family: str) -> None:
    model = peaked_model(family)
    keys = ["a", "b", "c", "d"]
    together = draw(model, PROMPTS, keys)
    alone = [draw(model, [prompt], [key])[0] for prompt, key in zip(PROMPTS, keys, strict=True)]
    backwards = draw(model, PROMPTS[::-1], keys[::-1])[::-1]
    assert together == alone == backwards


def test_responses_of_one_reading_of_the_prompt_equal_separate_ones() -> None:
    model = peaked_model()
    keys = [str(place) for place in range(6)]
    shared = draw(model, PROMPTS[:2], keys, 3)
    separate = draw(model, [prompt for prompt in PROMPTS[:2] for _ in range(3)], keys, 1)
    assert shared == separate
    assert len({tuple(each.ids) for each in shared}) == 6


def test_the_prompt_is_read_once_for_all_of_its_responses() -> None:
    model = peaked_model()
    seen: list[tuple[int, int]] = []
    model.register_forward_pre_hook(
        lambda _m, _a, words: seen.append(tuple(words["input_ids"].shape)), with_kwargs=True
    )
    draw(model, PROMPTS[:2], [str(each) for each in range(8)], 4, stop_ids=frozenset(), max_new_tokens=3)
    assert seen == [(2, 7), (8, 1), (8, 1)]  # and nothing is computed after the last token


def test_finished_rows_leave_the_batch() -> None:
    model = peaked_model()
    widths: list[int] = []
    model.register_forward_pre_hook(lambda _m, _a, words: widths.append(len(words["input_ids"])), with_kwargs=True)
    drawn = draw(model, PROMPTS, [str(each) for each in range(32)], 8, max_new_tokens=30)
    assert widths == [4, *sorted(widths[1:], reverse=True)]
    assert widths[-1] < 32
    assert len(widths) == max(len(each.ids) for each in drawn)


@pytest.mark.parametrize(("top_k", "top_p"), [(3, 1.0), (0, 0.5), (4, 0.7), (0, 0.01)])
def test_a_cut_distribution_holds_the_likeliest_tokens_in_proportion(top_k: int, top_p: float) -> None:
    logits = torch.tensor([0.1, 2.0, 1.5, -1.0, 1.9, 0.7])
    probabilities = torch.softmax(logits.double(), 0)
    order = sorted(range(6), key=lambda token: -probabilities[token].item())
    kept, mass = [], 0.0
    for token in order:
        if mass >= top_p or (top_k and len(kept) == top_k):
            break
        kept.append(token)
        mass += probabilities[token].item()
    n = 20_000
    drawn = choose_tokens(logits.expand(n, 6), random_numbers(1, ["x"], n)[0], 1.0, top_k, top_p).tolist()
    assert set(drawn) == set(kept)
    wanted = [probabilities[token].item() / mass * n for token in kept]
    counts = [drawn.count(token) for token in kept]
    assert len(kept) == 1 or chisquare(counts, wanted, sum_check=False).pvalue > FALSE_ALARM


@pytest.mark.parametrize("cut", [{}, {"top_k": 4}, {"top_p": 0.99}])
def test_a_token_without_probability_is_never_drawn(cut: dict[str, float]) -> None:
    logits = torch.tensor([[float("-inf"), 1.0, 0.5, float("-inf")]])
    for number in (0.0, 0.3, 0.7, 1 - 2**-53):
        token = choose_tokens(logits, torch.tensor([number], dtype=torch.float64), 1.0, **cut)  # type: ignore[arg-type]
        assert int(token) in (1, 2)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_logits_that_are_not_numbers_stop_the_run(bad: float) -> None:
    with pytest.raises(NotFinite, match="not finite"):
        choose_tokens(torch.tensor([[0.0, bad]]), torch.tensor([0.5]), 1.0)


def test_every_token_in_the_list_of_ends_ends_a_response() -> None:
    model = peaked_model()
    ends = {each.ids[-1] for each in draw(model, PROMPTS, [str(each) for each in range(400)], 100) if each.has_ended}
    assert len(ends) > 5
    assert ends <= STOPS
    once = draw(model, PROMPTS, ["1", "2", "3", "4"], stop_ids=frozenset(range(264)))
    assert [len(each.ids) for each in once] == [1, 1, 1, 1]


def test_random_numbers_belong_to_their_key_and_seed() -> None:
    numbers = random_numbers(5, ["a", "b"], 8)
    assert torch.equal(numbers[1], random_numbers(5, ["b", "c", "d"], 8)[0])
    assert torch.equal(numbers[:, :5], random_numbers(5, ["a", "b"], 5))  # a longer limit draws the same start
    assert not torch.equal(numbers[0], random_numbers(6, ["a"], 8)[0])
    assert numbers.dtype == torch.float64
    assert bool(((numbers >= 0) & (numbers < 1)).all())


def test_the_same_seed_says_the_same_whatever_the_global_one() -> None:
    model = peaked_model()
    torch.manual_seed(1)
    first = draw(model, PROMPTS, list("abcd"), seed=4)
    torch.manual_seed(2)
    assert draw(model, PROMPTS, list("abcd"), seed=4) == first
    assert draw(model, PROMPTS, list("abcd"), seed=5) != first


def test_a_request_to_stop_is_heard_between_two_tokens() -> None:
    calls = 0

    def check() -> None:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise Cancelled("stop")

    forwards = []
    model = peaked_model()
    model.register_forward_pre_hook(lambda *_: forwards.append(1))
    with pytest.raises(Cancelled):
        draw(model, PROMPTS, list("abcd"), stop_ids=frozenset(), check=check)
    assert len(forwards) == 4  # the prompt and three tokens


def test_sampling_leaves_no_gradient_and_changes_no_weight() -> None:
    model = peaked_model()
    before = {name: each.clone() for name, each in model.state_dict().items()}
    draw(model, PROMPTS, list("abcd"))
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())
    assert all(each.grad is None for each in model.parameters())
