"""Runs: their state, what they report and leave out, what they learn from, and what is held out of them."""
