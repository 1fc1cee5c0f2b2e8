"""What a reward run would cut or leave out, counted before it starts."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from app.actions.context import home, store
from app.actions.runs import count_reward_data
from app.widgets.base.page import ShownErrors
from app.words.values import field_label
from data.fields import from_dict
from training.launch.config import RewardConfig
from training.launch.count import Counted

WORDS = {
    "train": "rankings to learn from",
    "held_out": "rankings held out",
    "prompts_refused": "rankings left out: the model's template refuses the prompt",
    "prompts_cut": "rankings whose prompt is cut, on its left",
    "responses_cut": "responses that are cut, on their right",
    "responses_same_when_cut": "responses left out: cut, they are the same as another one",
    "groups_without_pair": "rankings left out: no pair is left in them",
    "prompts_with_facts": "rankings whose prompt has reference facts",
}


def count_now(key: str, values: dict[str, Any], snapshot_id: str) -> None:
    """Count, saying so meanwhile; what is found stays on the page. An error is shown, and nothing is started."""
    st.session_state.pop(key, None)
    words = "Encoding the snapshot with the model's tokenizer, in a process of its own: some seconds, or longer where "
    with st.spinner(f"{words}the model must be fetched first", show_time=True), ShownErrors():
        found = count_reward_data(store(), home(), from_dict(RewardConfig, values), snapshot_id)
        st.session_state[key] = (snapshot_id, found)


def show_counts(key: str, snapshot_id: str) -> None:
    """What was counted last, if it was of this snapshot."""
    counted_of, counted = st.session_state.get(key, ("", None))
    if counted is None or counted_of != snapshot_id:
        return
    with st.container(border=True, key=f"{key}.counts"):
        st.text(summary(counted))
        table = pd.DataFrame(
            {
                "count": list(counted.counts.values()),
                "what": [WORDS.get(each, field_label(each)) for each in counted.counts],
            }
        )
        st.dataframe(
            table,
            hide_index=True,
            key=f"{key}.table",
            column_config={"count": st.column_config.NumberColumn("Number"), "what": "What"},
            alt="What the run would learn from, cut and leave out",
        )


def summary(counted: Counted) -> str:
    """With what was counted, and whether anything is lost."""
    lost = {name for name, number in counted.counts.items() if number} - {"train", "held_out", "prompts_with_facts"}
    end = "some of it is cut or left out" if lost else "nothing is cut or left out"
    return f"With {counted.base_model['name']} and at most {counted.max_length:,} tokens, {end}."
