"""Whether an answer came faster than its texts can be read. What follows from it, `labeling.work.alarms` says."""

from __future__ import annotations

from data.hygiene import words_of
from data.records import Task

FASTEST_READING = 60.0  # words per second: ten times what practised people manage who only look a text over


def n_words(task: Task) -> int:
    """How many words there are to read before a task can be ranked: the prompt and all responses."""
    texts = [message["content"] for message in task.messages] + [response.text for response in task.responses]
    return sum(len(words_of(text)) for text in texts)


def is_hasty(duration_ms: int, words: int) -> bool:
    """Whether so many words were read faster than anybody reads."""
    return duration_ms * FASTEST_READING < words * 1000
