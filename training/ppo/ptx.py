"""What PPO-ptx learns from beside the rewards: the snapshot's best-ranked responses, or the texts of a file.

Each is (ids that are only read, ids whose log-probability counts).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

from data.errors import InvalidInput
from data.files.language_texts import LanguageText, Unfit, found_words, read_texts
from data.files.snapshots import file_hash, read_groups
from data.records import Messages, Split
from training.jobs.inputs import kept_file
from training.jobs.left_out import LeftOut
from training.jobs.reporter import Reporter
from training.launch.config import PPOConfig
from training.lm.encoding import Encoder, Fitted, fit

MOST = 100_000  # examples that are held in memory
REFUSED = "the model's template refuses its prompt"
Example = tuple[list[int], list[int]]


def ptx_examples(config: PPOConfig, reporter: Reporter, encoder: Encoder, context: int) -> list[Example]:
    """What the steps draw from. context: how many tokens the models read. Raises InvalidInput if there is nothing."""
    if config.ptx_file:
        return texts_of_file(config, reporter, encoder, context)
    return best_responses(reporter, encoder, context)


def best_responses(reporter: Reporter, encoder: Encoder, context: int) -> list[Example]:
    """(prompt, best-ranked response) of the snapshot's training side, as token ids; what had to be cut is counted.

    Raises InvalidInput if there is none.
    """
    counts = Counter[str](used=0, cut=0, refused=0)
    pairs = []
    for group in read_groups(reporter.home.snapshot_folder(reporter.run.snapshot_id or "")):
        if group.split is not Split.TRAIN:
            continue
        fitted = _fitted(encoder, group.messages, group.best, context)
        if fitted is None:
            counts["refused"] += 1
            continue
        counts.update(used=1, cut=fitted.is_prompt_cut or fitted.is_response_cut)
        pairs.append((fitted.prompt, fitted.response))
    reporter.event("best_responses", **counts)
    LeftOut("best-ranked responses", counts["used"] + counts["refused"], counts["refused"], REFUSED).report(
        reporter, "Take a model that reads such prompts, or name a ptx_file"
    )
    if not pairs:
        raise InvalidInput("ptx_coef: the snapshot's training side holds no response that can be used")
    return pairs


def texts_of_file(config: PPOConfig, reporter: Reporter, encoder: Encoder, context: int) -> list[Example]:
    """The texts of `ptx_file`. None is longer than a prompt with its response can be in this run, so that a step needs
    no more memory for it; a longer plain text is learnt in pieces, a pair is cut as in fine-tuning.

    Of more than MOST examples as many are drawn at random, by the seed. What is left out is counted by reason in an
    event, with the hash of the file. Raises InvalidInput if nothing is left.
    """
    path = kept_file("ptx_file", config.ptx_file, reporter)
    limit = min(context, config.sampling.max_prompt_tokens + config.sampling.max_new_tokens)
    counts, unfit = Counter[str](texts=0, pieces=0, responses=0, cut=0), Counter[str]()
    examples: list[Example] = []
    rng, n_seen, first_problem = random.Random(config.machine.seed), 0, ""
    for n_rows, row in enumerate(read_texts(path)):
        if n_rows % 1000 == 0:
            reporter.raise_if_stopping()
        if isinstance(row, Unfit):
            unfit[row.reason] += 1
            first_problem = first_problem or f"line {row.line}: {row.message}"
            continue
        for example in _examples_of(row, encoder, limit, counts, unfit):
            n_seen += 1
            if len(examples) < MOST:
                examples.append(example)
            elif (place := rng.randrange(n_seen)) < MOST:
                examples[place] = example
    said = {f"left_out_{reason}": n for reason, n in unfit.items()} | {"not_drawn": n_seen - len(examples)}
    words = {"first_problem": first_problem} if first_problem else {}
    reporter.event("ptx_texts", **counts, **said, **words, longest=limit, sha256=file_hash(path))
    LeftOut.counted("texts of ptx_file", unfit, counts["texts"] + counts["responses"]).note(reporter)
    if not examples:
        raise InvalidInput(f"ptx_file: {config.ptx_file} has no text that can be used{found_words(unfit)}")
    return examples


def _examples_of(
    row: LanguageText, encoder: Encoder, limit: int, counts: Counter[str], unfit: Counter[str]
) -> Iterator[Example]:
    if row.messages is None:
        cut = list(pieces(encoder.text_ids(row.text), limit))
        if not cut:
            unfit["no_token"] += 1
        counts.update(texts=bool(cut), pieces=len(cut))
        yield from cut
        return
    fitted = _fitted(encoder, row.messages, row.text, limit)
    if fitted is None:
        unfit["refused_by_template"] += 1
        return
    counts.update(responses=1, cut=fitted.is_prompt_cut or fitted.is_response_cut)
    yield fitted.prompt, fitted.response


def _fitted(encoder: Encoder, messages: Messages, response: str, limit: int) -> Fitted | None:
    """A pair cut to `limit` tokens; None where the template refuses the prompt."""
    try:
        prompt = encoder.prompt_ids(messages)
    except InvalidInput:
        return None
    return fit(prompt, encoder.response_ids(response), limit)


def pieces(ids: list[int], limit: int) -> Iterator[Example]:
    """A text in pieces of at most `limit` tokens. Every token but the text's first is predicted once: a piece begins
    with the last token of the one before, which is only read."""
    for start in range(0, len(ids) - 1, limit - 1):
        yield ids[start : start + 1], ids[start + 1 : start + limit]
