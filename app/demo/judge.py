"""The demo's stated gold rule, and annotators who rank by it, with noise.

Gold: 1 if the answer ends by itself, else 0; minus 0.04 for each token that it is longer or shorter than 20. Its
optimum lies inside what the policy can do: too short is as bad as too long. The reward model and PPO never see it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

from data.labels.people import add_person, list_people
from data.records import Assignment, Person, Role
from data.store import Store
from labeling.work.session import next_work, submit

BEST_LENGTH, TOKEN_COST, END_BONUS = 20, 0.04, 1.0
NOISE = 0.05  # scale of the Gumbel noise on what an annotator perceives
LAPSE = 0.05  # how often an annotator ranks at random
STEP = 0.1  # answers closer than this look equally good: a tie

Gold = Callable[[int, bool], float]  # how good an answer is, from its tokens and whether it ended by itself


def gold_score(n_tokens: int, ended: bool) -> float:
    """The gold rule."""
    return END_BONUS * ended - TOKEN_COST * abs(n_tokens - BEST_LENGTH)


def simulated_annotators(store: Store, n: int) -> list[Person]:
    """People who can't sign in, made once."""
    names = [f"Simulated annotator {number}" for number in range(1, n + 1)]
    with store.begin() as tx:
        known = {person.name: person for person in list_people(tx, with_external=True)}
        return [known.get(name) or add_person(tx, name, Role.ANNOTATOR, is_external=True) for name in names]


def rank_everything(store: Store, project_id: str, annotators: list[Person], seed: int, gold: Gold = gold_score) -> int:
    """Let the annotators rank all tasks of a project in turn by a rule, by the same use cases as in the browser."""
    rng = random.Random(seed)
    n_ranked = 0
    waiting = list(annotators)
    while waiting:
        annotator = waiting.pop(0)
        work = next_work(store, annotator, project_id, n=1)
        if work.assignments:
            submit(store, annotator, judge(work.assignments[0], rng, n_ranked, gold))
            n_ranked += 1
            waiting.append(annotator)
    return n_ranked


def judge(assignment: Assignment, rng: random.Random, number: int, gold: Gold = gold_score) -> dict[str, Any]:
    """A submission as the browser would send it: ranks by display place, from perceived quality."""
    perceived = []
    has_lapse = rng.random() < LAPSE
    for position in assignment.display_order:
        facts = assignment.task.responses[position].provenance
        quality = gold(int(facts["n_tokens"]), facts["finish_reason"] == "eos")
        noise = -NOISE * math.log(-math.log(rng.random()))
        perceived.append(rng.randrange(100) if has_lapse else round((quality + noise) / STEP))
    return {
        "submission_key": f"demo-{assignment.lease_token}-{number}",
        "task_id": assignment.task.id,
        "lease_token": assignment.lease_token,
        "display_order": list(assignment.display_order),
        "ranks": [1 + sum(other > each for other in perceived) for each in perceived],
    }
