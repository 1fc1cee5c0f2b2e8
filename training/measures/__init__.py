"""How good a model is, from numbers that are already there: figures, calibration, verdicts; no torch."""
