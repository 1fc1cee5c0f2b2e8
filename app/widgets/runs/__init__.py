"""Parts of screens about any run: its state, its curves, its details, where it came from."""
