"""What is conspicuous in an annotator's way of working, in plain words with what to do. Pure, no Streamlit.

A note is a reason to look at rankings, no verdict. The tests' limit is shared between all who are tested: however many
annotators there are, the chance that anybody gets a note for nothing stays at about one in twenty per test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.words.values import count, share_with_reach
from data.intervals import wilson

if TYPE_CHECKING:
    from collections.abc import Sequence

    from labeling.review.agreement import Share
    from labeling.work.alarms import AnnotatorAlarm
    from labeling.work.checks import AnnotatorRow

ALARM_P = 0.05
MIN_HASTY, HASTY_SHARE = 3, 0.05
BUSY_MINUTE = 10  # answers: one each 6 seconds, for whole rankings
LOW_AGREEMENT, MIN_COMPARISONS = 0.5, 30
SKIP_SHARE, MIN_ANSWERS = 0.3, 20
LOW_CONSISTENCY, MIN_REPEATS = 0.6, 5


def notes_of(row: AnnotatorRow, share: Share | None, n_people: int) -> list[str]:
    """The notes on one annotator. `share`: how far they agree with others; `n_people`: annotators in the project."""
    notes = [*_checks(row), *_pace(row), *_bias(row, ALARM_P / max(1, n_people))]
    n_answers = row.n_ranked + row.n_unacceptable + row.n_skipped
    if n_answers >= MIN_ANSWERS and row.n_skipped > SKIP_SHARE * n_answers:
        share_skipped = row.n_skipped / n_answers
        notes.append(
            f"Skipped {row.n_skipped:,} of {count(n_answers, 'task')}, "
            f"{share_with_reach(share_skipped, *wilson(share_skipped, n_answers))}. Read the reasons: the guidelines, "
            "or the choice of prompts, may need a change."
        )
    agreement = share.agreement if share is not None and share.n >= MIN_COMPARISONS else None
    if share is not None and agreement is not None and agreement < LOW_AGREEMENT:
        notes.append(
            f"Agrees with others on {share_with_reach(agreement, share.low, share.high)} of "
            f"{count(share.n, 'comparison')} in {count(share.n_tasks, 'task')}. Go through some of the disputed "
            "tasks together: the guidelines may be read in two ways. A snapshot can weigh annotators by how reliable "
            "they are (its setting annotator_weights)."
        )
    return notes


def _checks(row: AnnotatorRow) -> list[str]:
    notes = []
    if row.is_paused:
        notes.append("Gets no work in this project now. The Projects page says why, and lifts the pause.")
    for alarm in row.alarms:
        if alarm.kind == "gold":
            notes.append(
                f"Agrees with gold on {share_with_reach(alarm.value, alarm.low, alarm.high)} of the comparisons in "
                f"{count(alarm.n, 'task')}, below {alarm.threshold:.0%}{by_chance(alarm)}. Go "
                "through these tasks with them; if others fail too, look at the gold itself."
            )
    again = row.consistency
    if again.value is not None and again.n_items >= MIN_REPEATS and again.value < LOW_CONSISTENCY:
        notes.append(
            f"Agrees with themselves on {share_with_reach(again.value, again.low, again.high)} of the comparisons in "
            f"{count(again.n_items, 'task')} that "
            "came twice. Perhaps these responses are hard to tell apart: look at them before you ask how they work."
        )
    return notes


def _pace(row: AnnotatorRow) -> list[str]:
    notes = []
    if row.n_hasty >= MIN_HASTY and row.n_hasty > HASTY_SHARE * row.n_timed:
        share = row.n_hasty / row.n_timed
        notes.append(
            f"{row.n_hasty:,} of {count(row.n_timed, 'answer')} came faster than their texts can be read, "
            f"{share_with_reach(share, *wilson(share, row.n_timed))}. Look at some "
            "of these rankings before you train on them, and ask how they work."
        )
    if row.busiest_minute >= BUSY_MINUTE:
        notes.append(
            f"{row.busiest_minute:,} answers were stored within one minute. After a lost connection answers arrive "
            "together, which is fine; otherwise look at them."
        )
    return notes


def _bias(row: AnnotatorRow, alarm: float) -> list[str]:
    notes = []
    position, length = row.position, row.length
    if position.p_value is not None and position.p_value < alarm:
        differences = [one - other for one, other in zip(position.observed, position.expected, strict=True)]
        most = differences.index(max(differences))
        notes.append(
            f"Rank 1 stood {position.observed[most]:.0f} times at place {chr(65 + most)} on the screen, "
            f"{position.expected[most]:.0f} are expected by chance ({count(position.n, 'ranking')}, "
            f"p {p_words(position.p_value)}). Perhaps they do "
            "not read all responses: look at their rankings. Orders are drawn anew for each task, so this adds "
            "noise, and no leaning."
        )
    if length.p_value is not None and length.share is not None and length.p_value < alarm:
        side, reach = "longer", (length.share, length.low, length.high)
        if length.share < 0.5 and length.low is not None and length.high is not None:
            side, reach = "shorter", (1 - length.share, 1 - length.high, 1 - length.low)
        notes.append(
            f"Prefers the {side} responses in {share_with_reach(*reach)} of {count(length.n, 'ranking')} "
            f"(p {p_words(length.p_value)}). They may be the better ones: compare with the other annotators first. A "
            "reward model learns such a leaning; its run shows how well length alone does (length accuracy)."
        )
    return notes


def nothing_words(rows: Sequence[AnnotatorRow], whose: str) -> str:
    """That nobody is conspicuous, of how many answers; or that there are too few to tell."""
    n = sum(row.n_ranked + row.n_unacceptable + row.n_skipped for row in rows)
    fewest = min((row.n_ranked + row.n_unacceptable + row.n_skipped for row in rows), default=0)
    if fewest < MIN_ANSWERS:
        return (
            f"Nothing conspicuous in {whose} way of working yet: {count(n, 'answer')}, {fewest:,} of who has fewest; "
            f"most checks say nothing below {MIN_ANSWERS} answers."
        )
    return f"Nothing conspicuous in {whose} way of working: {count(n, 'answer')}."


def by_chance(alarm: AnnotatorAlarm) -> str:
    """What is said of a threshold that the interval of what was measured holds."""
    if alarm.low is None or alarm.high is None or not alarm.low <= alarm.threshold <= alarm.high:
        return ""
    return ", which may be chance, for the interval holds that"


def p_words(value: float | None) -> str:
    """A p-value for people: `0.0213`, `< 0.0001`, or nothing known."""
    return "undefined" if value is None else f"{value:.4f}" if value >= 0.0001 else "< 0.0001"
