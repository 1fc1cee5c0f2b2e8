"""What the policies of a comparison or of a table started from: the model that they are held against. No torch here."""

from __future__ import annotations

from data.errors import InvalidInput, NotFound
from data.runs.best_policy import run_of
from data.runs.state import get_run
from data.store import Tx


def start_of(tx: Tx, model: str) -> str | None:
    """The model that a policy of ours (run:ID, run:ID/best) started from, as a configuration names it; None for any
    other model."""
    run_id = run_of(model)
    if run_id is None:
        return None
    try:
        return str(get_run(tx, run_id).config.get("model") or "") or None
    except NotFound:
        return None


def start_behind(tx: Tx, model_b: str) -> str:
    """The first model of a comparison that names only the second. Raises InvalidInput where it is not known."""
    start = start_of(tx, model_b)
    if start is None:
        raise InvalidInput(
            f"model_a is empty, and what {model_b!r} started from is not known here: name the first model"
        )
    return start


def common_start(tx: Tx, policies: list[str]) -> str | None:
    """What policies started from, those left out that are themselves among them; None where no policy says it.

    Raises InvalidInput if they differ.
    """
    starts = {policy: start for policy in policies if (start := start_of(tx, policy))}
    found = {start for start in starts.values() if start not in policies}
    if len(found) < 2:
        return next(iter(found), None)
    words = ", ".join(f"{policy} from {start}" for policy, start in starts.items())
    raise InvalidInput(f"the policies did not start from one model ({words}): name the one to measure KL to, as model")
