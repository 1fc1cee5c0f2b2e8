"""The steps, in their order: one that has landed is never changed."""
