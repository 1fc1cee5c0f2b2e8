"""The demo: prompts and responses that the package carries, and `rankloop demo`, the whole loop by itself."""
