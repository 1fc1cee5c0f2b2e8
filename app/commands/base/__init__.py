"""What all words share: where to work, what to hand back, fields, waiting, progress."""
