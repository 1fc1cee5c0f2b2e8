"""Which policy of a PPO run is the best, in words, with its n and intervals. Plain functions, no Streamlit."""

from __future__ import annotations

from app.words.values import count, number
from data.intervals import LEAST_PROMPTS, Difference, Told
from data.runs.best_policy import START, BestPolicy


def best_words(best: BestPolicy, *, is_final: bool) -> str:
    """`Best policy: iteration 4, by held_out/objective: 0.71. It is better than the start by 0.2 (0.1 to 0.3). ... The
    last one measured, iteration 6, has 0.6.`

    Where the prompts are too few it is no verdict, and the words say so first.
    """
    figure, last = number(best.figure), "no number" if best.last_figure is None else number(best.last_figure)
    beside = f"The last one measured, iteration {best.last_iteration}, has {last}."
    if best.iteration == best.last_iteration:
        beside = "It is the last one measured." if best.iteration else "Nothing else is measured yet."
    kept = "" if best.iteration else "No best is kept."
    said = (_first_words(best, figure, is_final=is_final), standing_words(best), beside, kept)
    return " ".join(each for each in said if each)


def _first_words(best: BestPolicy, figure: str, *, is_final: bool) -> str:
    so_far, standing = "" if is_final else " so far", best.standing
    if standing is None or standing.prompts < LEAST_PROMPTS:
        n = "how many prompts were asked is not known" if standing is None else count(standing.prompts, "prompt")
        where = f"iteration {best.iteration}" if best.iteration else "the start"
        told = f"Which policy is best can't be told{'' if is_final else ' yet'}: {n}"
        needed = "" if standing is None else f", and {LEAST_PROMPTS} are needed"
        return f"{told}{needed}. The highest {best.told_by}{so_far}: {where}, {figure}."
    if not best.iteration:
        return f"No policy{so_far} has a higher {best.told_by} than the start: {figure}."
    return f"Best policy{so_far}: iteration {best.iteration}, by {best.told_by}: {figure}."


def standing_words(best: BestPolicy) -> str:
    """By how much it is better than the start and than the next best, with intervals; empty where it can't be told."""
    standing = best.standing
    if standing is None or standing.prompts < LEAST_PROMPTS:
        return ""
    whose, said = "It" if best.iteration else "The start", []
    if standing.less_start is not None:
        said.append(_than(whose, "the start", standing.less_start))
    if standing.less_next is not None and standing.next_iteration != START:
        said.append(_than(whose, f"the next, iteration {standing.next_iteration}", standing.less_next))
    n = f"{count(standing.prompts, 'prompt')}, the best of {count(standing.evaluations, 'evaluation')}"
    return f"{' '.join(said)} ({n}; paired 95 % intervals that allow for the choice.)" if said else f"({n}.)"


def _than(whose: str, what: str, difference: Difference) -> str:
    reach = f"{number(difference.value)} ({number(difference.low)} to {number(difference.high)})"
    if difference.told is Told.MORE:
        return f"{whose} is better than {what}, by {reach}."
    return f"Whether {whose[:1].lower()}{whose[1:]} is better than {what}, can't be told: {reach}."
