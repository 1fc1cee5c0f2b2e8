"""What a ranking means: ranks, pairs, consensus, agreement, bias; arithmetic alone."""
