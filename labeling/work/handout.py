"""What an annotator gets next: ordinary tasks, and by chance a check after one of them.

A check never comes alone: who has nothing left to rank gets none either, and the page may look again as often as it
likes. Where the project wants the shares g and r, a check of each kind follows an ordinary task with the chance
g / (1 - g - r) and r / (1 - g - r), so that g and r are shares of all that the annotator gets.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from data.labels.check_slots import REPEAT_AFTER, claim_gold, claim_repeat
from data.labels.slots import LEASE_MINUTES, Shuffle, claim_slots, shuffled
from data.records import Assignment, Project
from data.store.engine import Tx

Dice = Callable[[], float]
chance: Dice = random.SystemRandom().random  # nobody can foresee when a check comes


def hand_out(
    tx: Tx,
    project: Project,
    annotator_id: str,
    n: int,
    *,
    shuffle: Shuffle = shuffled,
    lease_minutes: float = LEASE_MINUTES,
    dice: Dice = chance,
    repeat_after: int = REPEAT_AFTER,
) -> list[Assignment]:
    """Claim n tasks or a few more; fewer where there are no more. The annotator's pages take turns here."""
    gold, repeat = project.settings.gold_share, project.settings.repeat_share
    if not gold and not repeat:
        return claim_slots(tx, project.id, annotator_id, n, shuffle=shuffle, lease_minutes=lease_minutes)
    claimed: list[Assignment] = []
    while len(claimed) < n:
        ordinary = claim_slots(tx, project.id, annotator_id, 1, shuffle=shuffle, lease_minutes=lease_minutes)
        if not ordinary:
            break
        claimed += ordinary
        if dice() < gold / (1 - gold - repeat):
            claimed += claim_gold(tx, project.id, annotator_id, shuffle=shuffle, lease_minutes=lease_minutes)
        if dice() < repeat / (1 - gold - repeat):
            claimed += claim_repeat(
                tx, project.id, annotator_id, shuffle=shuffle, lease_minutes=lease_minutes, after=repeat_after
            )
    return claimed
