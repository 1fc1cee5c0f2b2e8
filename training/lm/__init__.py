"""Language models: finding, loading, encoding, sampling, scoring, checkpoints. What all runs share."""
