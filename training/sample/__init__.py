"""Runs that sample: responses to be ranked, and two models side by side."""
