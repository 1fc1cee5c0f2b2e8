"""What annotators mean: ranks, pairs, sessions, imports, snapshots, exports. No model, no screen."""
