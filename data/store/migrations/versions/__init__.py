"""The steps, in their order. A step that has landed is never changed."""
