"""What annotators mean: ranks, pairs, sessions, imports, snapshots, exports; no model, no screen."""
