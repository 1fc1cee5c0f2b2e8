"""The processes that do runs: a worker, its child, what it reports; no torch."""
