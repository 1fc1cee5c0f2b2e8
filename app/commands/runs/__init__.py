"""The words that queue runs, look at them and wait for them."""
