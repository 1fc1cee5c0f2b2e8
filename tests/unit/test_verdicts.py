"""Every verdict that the product words has its n and an interval, or says that it can't be told."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from app.actions.instant import InstantAccuracy
from app.demo.report import gain_words as demo_gain
from app.screens.compare import difference_words
from app.widgets.labels.agreement import mark_words
from app.widgets.labels.win_rates import rate_words
from app.widgets.policies.distributions import gain_words as mean_gain
from app.widgets.policies.policies_table import gain_words as table_gain
from app.widgets.rewards.instant_panel import verdict as labels_tell
from app.widgets.rewards.report import more_words, sureness_words
from app.words.best_policy import best_words
from data.intervals import Difference, paired
from data.runs.best_policy import BestPolicy, standing
from labeling.judgement.win_rates import PairOutcome, win_rates
from labeling.review.agreement import Figure
from labeling.review.selection_report import Arm
from labeling.review.selection_report import verdict as selection_verdict
from training.measures.calibration import calibration
from training.measures.figures import DIFFERENCE, share
from training.measures.verdicts import against

ROOT = Path(__file__).parents[2]


def gains(n: int, effect: float) -> list[float]:
    """Differences of n prompts: `effect` on average, and 0.3 more or less in turn."""
    return [effect + (0.3 if each % 2 else -0.3) for each in range(n)]


def gain(n: int, effect: float) -> Difference:
    return paired(gains(n, effect), [0.0] * n)


def shares(n: int, effect: float) -> dict[str, float | int | None]:
    """A difference of shares; half of the prompts say the one thing where nothing is to be seen."""
    values = np.array([1.0 if effect or each % 2 else -1.0 for each in range(n)])
    values[0] = 0.0
    return share(values, np.ones(n), np.arange(n), DIFFERENCE)


def best(n: int, effect: float) -> str:
    values = {0: [0.0] * n, 2: gains(n, effect + 0.01), 4: gains(n, -effect)}
    found = BestPolicy(2, "held_out/objective", effect, 4, -effect, standing(2, values, 3))
    return best_words(found, is_final=True)


def compared(n: int, effect: float) -> str:
    return difference_words([{"a": {"score": 0.0}, "b": {"score": each}} for each in gains(n, effect)])


def table(n: int, effect: float) -> str:
    row = {"model": "run:x", "gain_told": gain(n, effect).told.value}
    return table_gain({"prompts": n, "policies": [row]})


def rates(n: int, effect: float) -> str:
    outcomes = [[[PairOutcome("one", "two", 1.0 if effect or each % 2 else 0.0)]] for each in range(n)]
    return rate_words(win_rates(outcomes).rates, {})


def labels(n: int, effect: float) -> str:
    return labels_tell(InstantAccuracy(n, 0, gain=shares(n, effect)))


def sureness(n: int, effect: float) -> str:
    """Margins of 4 of which three in four are right: too sure. Of 1.0986 = log 3: just so."""
    margins = np.array([(4.0 if effect else 1.0986) * (1 if each % 4 else -1) for each in range(n)])
    return sureness_words(calibration(margins, np.ones(n), np.ones(n), np.arange(n)))


def mark(n: int, _effect: float) -> str:
    return mark_words(Figure(0.9, 0.8, 0.95, 5 * n, n))


def more(n: int, effect: float) -> str:
    needed = (
        {"rankings": 500.0, "low": 100.0, "high": None} if effect else {"rankings": None, "low": 90.0, "high": None}
    )
    return more_words(
        {"prompts": n, "more_for_one_point": needed, "at_twice": {"accuracy": 0.7, "low": 0.6, "high": 0.8}}
    )


def selection(n: int, effect: float) -> str:
    interval = (effect - 0.1, effect + 0.1) if n >= 10 else None
    arms = [Arm(name, n, n, n, 0.5, None, None, None, None, None) for name in ("low_margin", "random")]
    return selection_verdict(arms, effect if n >= 10 else None, interval)


# What words a verdict: of n prompts with a large effect, or with none. `mark` says what a figure is, whatever its size.
MAKERS: dict[str, Callable[[int, float], str]] = {
    "training/measures/verdicts.py": lambda n, effect: against("length alone", "", 0.9, 0.7, shares(n, effect)),
    "app/words/best_policy.py": best,
    "app/screens/compare.py": compared,
    "app/widgets/policies/distributions.py": lambda n, effect: mean_gain(gains(n, effect)),
    "app/demo/report.py": lambda n, effect: demo_gain(gain(n, effect)),
    "app/widgets/policies/policies_table.py": table,
    "app/widgets/labels/win_rates.py": rates,
    "app/widgets/rewards/instant_panel.py": labels,
    "app/widgets/rewards/report.py": sureness,
    "app/widgets/rewards/report.py, more_words": more,
    "app/widgets/labels/agreement.py": mark,
    "labeling/review/selection_report.py": selection,
}
WITHOUT_REACH = {"app/widgets/policies/policies_table.py"}  # its intervals stand in the table that the words are about
UNKNOWN = re.compile(
    r"can't be told|can not be told|of the others it can't|Too early to say|No evidence|how much more", re.I
)
REACH = re.compile(r"[-+]?\d[\d.,]*\s?%? to (?:[-+]?\d[\d.,]*\s?%?|never)")


def says_n(words: str, n: int) -> bool:
    return re.search(rf"(?<![\d.]){n}(?![\d.]*\d)", words) is not None


@pytest.mark.parametrize("name", list(MAKERS))
def test_four_prompts_are_no_verdict(name: str) -> None:
    for effect in (2.0, 0.0):
        words = MAKERS[name](4, effect)
        assert UNKNOWN.search(words) and says_n(words, 4), words
        assert not re.search(r"Best policy|\bThe model (beats|does worse)|People prefer", words), words


@pytest.mark.parametrize("name", list(MAKERS))
def test_a_large_effect_on_many_prompts_is_told_with_its_n_and_interval(name: str) -> None:
    words = MAKERS[name](40, 2.0)
    told_so = words.replace("of the others it can't be told", "").replace("the two overlap it can't be told", "")
    assert not UNKNOWN.search(told_so), words
    assert says_n(words, 40), words
    assert REACH.search(words) or name in WITHOUT_REACH, words


@pytest.mark.parametrize("name", [each for each in MAKERS if each != "app/widgets/labels/agreement.py"])
def test_no_effect_can_not_be_told_however_many_prompts_there_are(name: str) -> None:
    words = MAKERS[name](40, 0.0)
    assert UNKNOWN.search(words), words
    assert REACH.search(words) or name in WITHOUT_REACH, words


def test_whatever_goes_by_an_interval_is_among_these() -> None:
    """A module of the product that asks what an interval says words a verdict, and belongs above."""
    found = {
        str(path.relative_to(ROOT))
        for package in ("app", "labeling", "training")
        for path in (ROOT / package).rglob("*.py")
        if re.search(r"\bTold\.(MORE|LESS|UNCLEAR|TOO_FEW)", path.read_text(encoding="utf-8"))
    }
    assert found <= set(MAKERS), found - set(MAKERS)
