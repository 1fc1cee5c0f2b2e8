"""Pure functions on tensors: no configuration, no device moves, no randomness, no argument changed in place.

Letters: B responses, T response tokens, V vocabulary, N texts, K responses of one prompt. In every mask True means
"counts". Padded places hold 0 and never enter a mean.
"""
