"""From the rankings of a project to a frozen snapshot, and to files for other libraries."""
