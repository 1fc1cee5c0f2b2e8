"""What a project asks of its annotators and how it checks them: one definition for the form, the command line and the
documentation. A project stores only what differs from these defaults."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from data.fields import from_dict, option, to_dict


class TaskOrder(StrEnum):
    """In which order tasks are handed out."""

    IN_ORDER = "in_order"
    RANDOM = "random"


class Hygiene(StrEnum):
    """What happens to a response with a problem: nothing, a badge that annotators see, or it is not offered.

    A sampling run draws again before it drops.
    """

    IGNORE = "ignore"
    BADGE = "badge"
    DROP = "drop"


class OnAlarm(StrEnum):
    """What follows from an annotator's low agreement with gold, or haste: researchers see it, or the work stops too."""

    WARN = "warn"
    PAUSE = "pause"


# After the metadata that InstructGPT's labellers gave (Ouyang et al. 2022, table 3).
DEFAULT_FLAGS = (
    "Fails to follow the instruction",
    "Inappropriate for a customer assistant",
    "Makes things up",
    "Breaks an explicit constraint",
    "Sexual content",
    "Violent content",
    "Encourages harm",
    "Denigrates a group of people",
    "Gives harmful advice",
    "Expresses an opinion",
    "Expresses a moral judgement",
)

_SHOWN, _GIVEN, _CLEAN = "What annotators answer", "How tasks are given out", "Sample hygiene"
_JUDGED = "What becomes of answers"
_CHECKED = "Checks on annotators"


def _hygiene(default: Hygiene, what: str) -> Any:
    return option(default.value, what, choices=tuple(Hygiene), group=_CLEAN)


@dataclass(frozen=True)
class LabelSettings:
    """A project's settings for labelling."""

    allow_partial: bool = option(
        False, "one key may place all that is left as worse, in no order: no pair among the rest", group=_SHOWN
    )
    ask_acceptable: bool = option(False, "ask of each response whether it is acceptable", group=_SHOWN)
    ask_flags: bool = option(False, "let annotators put the project's flags on a response", group=_SHOWN)
    ask_quality: bool = option(False, "ask for each response's quality, 1 (very bad) to 7 (very good)", group=_SHOWN)
    ask_strength: bool = option(
        False, "ask how much better the best is than the next, 1 (negligibly) to 4 (significantly)", group=_SHOWN
    )
    ask_rationale: bool = option(False, "offer a field for the reasons behind a ranking", group=_SHOWN)
    task_order: str = option(TaskOrder.IN_ORDER.value, "which task comes next", choices=tuple(TaskOrder), group=_GIVEN)
    adjudicate_below: float = option(
        0.5, "tasks whose annotators agree on less than this share of comparisons, or on whether any response is "
        "acceptable, wait for a decision; 0: none do",
        min=0.0, max=1.0, group=_JUDGED,
    )  # fmt: skip
    gold_share: float = option(
        0.0, "about this share of an annotator's tasks is gold, beyond the overlap and unknown to them", min=0.0,
        max=0.3, group=_CHECKED,
    )  # fmt: skip
    gold_min_items: int = option(
        5, "so many gold tasks are needed before an annotator's agreement with gold counts", min=1, max=1000,
        group=_CHECKED,
    )  # fmt: skip
    gold_threshold: float = option(
        0.7, "an alarm is raised where the pair agreement with gold is below this", min=0.0, max=1.0, group=_CHECKED
    )
    on_low_gold: str = option(
        OnAlarm.WARN.value, "what follows from low agreement with gold", choices=tuple(OnAlarm), group=_CHECKED
    )
    gold_in_snapshots: bool = option(False, "answers to gold tasks go into snapshots as others do", group=_CHECKED)
    repeat_share: float = option(
        0.0, "about this share of an annotator's tasks is one that they ranked before, in another order", min=0.0,
        max=0.2, group=_CHECKED,
    )  # fmt: skip
    haste_min_answers: int = option(
        20, "so many answers with a time are needed before an annotator's haste counts", min=1, max=1000,
        group=_CHECKED,
    )  # fmt: skip
    haste_threshold: float = option(
        0.2, "an alarm is raised where more than this share of the last answers came faster than anybody reads",
        min=0.0, max=1.0, group=_CHECKED,
    )  # fmt: skip
    on_haste: str = option(OnAlarm.WARN.value, "what follows from haste", choices=tuple(OnAlarm), group=_CHECKED)
    on_empty: str = _hygiene(Hygiene.DROP, "a response without a visible character")
    on_echo: str = _hygiene(Hygiene.BADGE, "a response that repeats the prompt")
    on_cut: str = _hygiene(Hygiene.BADGE, "a response that stopped at the length limit")
    on_near_duplicate: str = _hygiene(Hygiene.BADGE, "a response that is almost another one of its task")
    on_wrong_language: str = _hygiene(Hygiene.BADGE, "a response in another script than its prompt")
    on_error_text: str = _hygiene(Hygiene.BADGE, "a response that is an error message of an interface")
    on_self_identification: str = _hygiene(Hygiene.BADGE, "a response in which a model says what it is")


def settings_from(stored: dict[str, Any]) -> LabelSettings:
    """The settings with these values over the defaults. Raises InvalidConfig."""
    return from_dict(LabelSettings, stored)


def changed_settings(settings: LabelSettings) -> dict[str, Any]:
    """What differs from the defaults."""
    defaults = to_dict(LabelSettings())
    return {name: value for name, value in to_dict(settings).items() if value != defaults[name]}
