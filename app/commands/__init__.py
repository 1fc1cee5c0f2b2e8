"""The words of the command line, one module per group. Each has `add_words`; `app.cli` puts them together."""
