"""Python imports this at its start where PYTHONPATH names this folder: child processes then compute in float64 too."""

from everywhere import install

install()
