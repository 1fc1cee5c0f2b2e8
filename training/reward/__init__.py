"""The reward run, and the runs that use a reward model on texts."""
