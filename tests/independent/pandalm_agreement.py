"""Agreement of PandaLM's three annotators, in plain Python from the definitions. Shares no code with the product.

python tests/independent/pandalm_agreement.py testset-v1.json
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any


def figures(rows: list[dict[str, Any]]) -> dict[str, float]:
    equal = pairs = equal_strict = strict = 0
    points = guesses = 0.0
    coincidences: dict[tuple[str, str], float] = {}
    for row in rows:
        texts = [str(row["response1"]), str(row["response2"])]
        keys = [hashlib.sha256(text.encode()).hexdigest() for text in texts]
        is_turned = keys[1] < keys[0]
        labels = [row["annotator1"], row["annotator2"], row["annotator3"]]  # 0 tie, else which response is better
        values = ["=" if label == 0 else "<" if (label == 1) != is_turned else ">" for label in labels]
        for first in range(3):
            for second in range(3):
                if first == second:
                    continue
                key = (values[first], values[second])
                coincidences[key] = coincidences.get(key, 0.0) + 1 / 2  # 1 / (m - 1) with m = 3
                if values[first] != "=":  # the first as the truth, the second as the guess
                    guesses += 1
                    points += 1 if values[second] == values[first] else 0.5 if values[second] == "=" else 0
                if first < second:
                    pairs += 1
                    equal += values[first] == values[second]
                    if "=" not in key:
                        strict += 1
                        equal_strict += values[first] == values[second]
    totals: dict[str, float] = {}
    for (one, _), weight in coincidences.items():
        totals[one] = totals.get(one, 0.0) + weight
    n = sum(totals.values())
    observed = sum(weight for (one, other), weight in coincidences.items() if one != other) / n
    expected = sum(totals[a] * totals[b] for a in totals for b in totals if a != b) / (n * (n - 1))
    # Of two responses tau-b is 1 or -1, and undefined where either is a tie.
    tau = (equal_strict - (strict - equal_strict)) / strict
    return {
        "pairs_with_ties": equal / pairs, "pairs_without_ties": equal_strict / strict, "alpha": 1 - observed / expected,
        "tau": tau, "human_accuracy": points / guesses, "n_guesses": guesses, "n_pairs": pairs, "n_strict": strict,
        "n_values": n,
    }  # fmt: skip


if __name__ == "__main__":
    found = figures(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    sys.stdout.write(json.dumps(found, indent=2) + "\n")
