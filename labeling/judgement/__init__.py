"""What a ranking means: ranks, pairs, consensus, agreement, bias. Arithmetic alone."""
