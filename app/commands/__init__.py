"""The words of the command line, one module per group, each with `add_words`; `app.cli` puts them together."""
