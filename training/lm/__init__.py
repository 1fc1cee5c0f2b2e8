"""Language models, which all runs share: finding, loading, encoding, sampling, scoring, checkpoints."""
