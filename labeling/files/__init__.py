"""From people's files to prompts, responses and rankings, with nothing lost in silence."""
