"""A form made from a configuration class: one widget per field, with its help, unit and limits."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import streamlit as st

from app.actions.runs import may_read
from app.widgets.base.problems import plain
from app.words.values import field_label, number
from data.fields import FieldInfo, describe
from training.launch.settle import FILE_FIELDS, MODEL_FIELDS

GROUP_WORDS = {
    "sampling": "Sampling",
    "ranking": "What is learnt of a ranking",
    "optimiser": "Optimiser",
    "kl": "KL to the reference",
    "advantages": "Scores and advantages",
    "limits": "Limits",
    "evaluation": "Evaluation",
    "machine": "Machine",
}
Suggestions = dict[str, dict[str, str]]


def config_form(
    config: type,
    key: str,
    *,
    first: Sequence[str] = (),
    hidden: Collection[str] = (),
    initial: dict[str, Any] | None = None,
    suggestions: Suggestions | None = None,
    several: Suggestions | None = None,
) -> dict[str, Any]:
    """Draw the fields of a configuration and return their values, for `data.fields.from_dict`.

    `first`: fields to show in front of all groups, in this order; the others fold away. `hidden`: fields that the
    screen sets itself. `initial`: values to start from instead of the defaults. `suggestions`: for a text field,
    value -> label of what can be chosen; anything else may be typed. `several`: the same for a text field that names
    several with commas between.
    """
    values: dict[str, Any] = {}
    for group, members in grouped(config, first, hidden):
        where = st.container() if not group else st.expander(group, key=f"{key}.group.{group}")
        with where.grid(3, min_column_width=220, vertical_alignment="bottom"):
            for info in members:
                start = (initial or {}).get(info.name, info.default)
                offered = (several or {}).get(info.name)
                values[info.name] = (
                    _widget(info, f"{key}.{info.flat}", start, (suggestions or {}).get(info.name))
                    if offered is None
                    else _several_widget(info, f"{key}.{info.flat}", start, offered)
                )
    return values


def grouped(config: type, first: Sequence[str], hidden: Collection[str]) -> list[tuple[str, list[FieldInfo]]]:
    """A configuration's fields by group, in the order of a form; what stands in front has no group's name."""
    infos = {info.name: info for info in describe(config) if info.name not in hidden}
    front = [infos.pop(name) for name in first if name in infos]
    rest = [info for info in infos.values() if not info.group]
    groups = [("", front), ("More", rest)] if front else [("", rest)]
    names = dict.fromkeys([*GROUP_WORDS, *(info.group for info in infos.values() if info.group)])
    groups += [(GROUP_WORDS.get(name, name), [info for info in infos.values() if info.group == name]) for name in names]
    return [(words, members) for words, members in groups if members]


def label_of(info: FieldInfo) -> str:
    """A field's label, with its unit where the name does not say it."""
    label = field_label(info.flat)
    return f"{label} ({info.unit})" if info.unit and info.unit not in label.lower() else label


def help_of(info: FieldInfo) -> str:
    """A field's help, its default, and how the command line calls it."""
    default = f"`{info.default}`" if info.default != "" else "empty"
    return f"{info.help[:1].upper()}{info.help[1:]}. Default: {default}. On the command line: `--set {info.name}=...`"


def _widget(info: FieldInfo, key: str, start: Any, suggested: dict[str, str] | None) -> Any:
    label, about = label_of(info), help_of(info)
    if info.name in (*FILE_FIELDS, *MODEL_FIELDS):
        about += f"\n\n{plain(may_read().words)}"
    if info.type is bool:
        return st.toggle(label, value=bool(start), key=key, help=about)
    if info.choices:
        return st.selectbox(label, info.choices, index=info.choices.index(start), key=key, help=about)
    if info.type is str:
        if suggested is None:
            return st.text_input(label, start, key=key, help=about)
        options = list(suggested)
        chosen = st.selectbox(
            label,
            options,
            index=options.index(start) if start in options else None,
            format_func=lambda value: suggested.get(value, value),
            accept_new_options=True,
            placeholder="Choose, or type a folder or hub id",
            key=key,
            help=about,
        )
        return chosen or ""
    return _number_widget(info, key, start, label, about)


def _several_widget(info: FieldInfo, key: str, start: str, offered: dict[str, str]) -> str:
    started = [each for each in start.split(",") if each]
    chosen = st.multiselect(
        label_of(info),
        list(dict.fromkeys([*offered, *started])),
        default=started,
        format_func=lambda value: offered.get(value, value),
        accept_new_options=True,
        placeholder="None, or choose some",
        key=key,
        help=help_of(info),
    )
    return ",".join(chosen)


def _number_widget(info: FieldInfo, key: str, start: Any, label: str, about: str) -> Any:
    of = info.type
    low = None if info.min is None else of(info.min)
    high = None if info.max is None else of(info.max)
    size: int | float = 1
    if of is float:
        size = abs(start or 0.0) / 10 or 0.01
    if info.optional and start is not None:  # a widget with a default can't be emptied: the start goes in by the state
        st.session_state.setdefault(key, of(start))
        start = None
    return st.number_input(
        label,
        min_value=low,
        max_value=high,
        value=None if start is None else of(start),
        step=size,
        format="%d" if of is int else "%g",
        placeholder="none" if info.optional else number(info.default),
        key=key,
        help=about,
    )
