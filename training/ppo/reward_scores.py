"""Does a reward model that shares the policy's base give the scores of the saved one?"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from training.jobs.reporter import Reporter
from training.lm.checkpoint import kept_random_state
from training.lm.encoding import Encoder
from training.lm.models import Machine
from training.lm.recorded_scores import RECORDED_FILE, TEXTS, difference, recorded_scores
from training.lm.scorer import Scorer
from training.ppo.roles import Roles, SharedRewardModel
from training.ppo.rollout import PromptItem

_PROMPT_TOKENS = 24
_CPU = Machine(torch.device("cpu"), is_bf16=False)


def check_shared_reward_model(
    reporter: Reporter, roles: Roles, machine: Machine, prompts: Sequence[PromptItem], encoder: Encoder
) -> None:
    """Compare the scores of a reward model that shares the policy's base with those of the saved one.

    They were recorded when it was saved; where an earlier version did not, the saved model is loaded for it, on the
    CPU. Raises InvalidInput.
    """
    judge, run_id = roles.reward_model, reporter.run.reward_run_id or ""
    if not isinstance(judge, SharedRewardModel):
        return
    path = reporter.home.run_folder(run_id) / RECORDED_FILE
    if path.is_file():
        texts, wanted, is_half = recorded_scores(path)
    else:
        texts, is_half = [[*prompt.ids[:_PROMPT_TOKENS], encoder.end_id] for prompt in prompts[:TEXTS]], False
        with kept_random_state():
            wanted = Scorer(reporter.home, run_id, _CPU).score_ids(texts) + judge.shift
    found = judge.raw_scores(texts)
    what = f"the reward model's scores of {len(texts)} texts, on the policy's base against the saved model"
    apart = difference(what, found, wanted, is_half=is_half or machine.is_bf16)
    reporter.event("reward_scores_compared", texts=len(texts), recorded=path.is_file(), largest_difference=apart)
