"""Configuration fields: one definition, from which the command line, the forms and the documentation are made.

A configuration is a frozen dataclass whose fields are made with `option`. Its values come from a dict (`from_dict`) or
from words like `kl_coef=0.05` (`from_words`); unknown names, wrong types and values out of range are refused by name.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from data.errors import InvalidConfig

ConfigT = TypeVar("ConfigT")


@dataclass(frozen=True)
class FieldInfo:
    """What a form or a help page needs to know of one field. `type` is bool, int, float or str."""

    name: str
    type: type
    optional: bool
    default: Any
    help: str
    unit: str
    min: float | None
    max: float | None
    choices: tuple[str, ...]
    group: str


def option(
    default: Any,
    help: str,
    *,
    unit: str = "",
    min: float | None = None,
    max: float | None = None,
    choices: tuple[str, ...] = (),
    group: str = "",
) -> Any:
    """A dataclass field with its help, unit and limits."""
    facts = {"help": help, "unit": unit, "min": min, "max": max, "choices": choices, "group": group}
    return dataclasses.field(default=default, metadata=facts)


def describe(config: type) -> list[FieldInfo]:
    """The fields of a configuration class, in their order."""
    hints = typing.get_type_hints(config)
    infos = []
    for each in dataclasses.fields(config):
        parts = typing.get_args(hints[each.name]) if _is_union(hints[each.name]) else (hints[each.name],)
        infos.append(
            FieldInfo(
                name=each.name,
                type=next(part for part in parts if part is not type(None)),
                optional=type(None) in parts,
                default=each.default,
                **each.metadata,
            )
        )
    return infos


def from_dict(config: type[ConfigT], values: dict[str, Any]) -> ConfigT:
    """Make a configuration. Raises InvalidConfig that names the field, what was given and what is allowed."""
    known = {info.name: info for info in describe(config)}
    for name in values:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            advice = f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(known)}"
            raise InvalidConfig(f"{config.__name__} has no field {name!r}{advice}")
    return config(**{name: _checked(known[name], value) for name, value in values.items()})


def from_words(config: type[ConfigT], words: Iterable[str], base: dict[str, Any] | None = None) -> ConfigT:
    """Make a configuration from words like `name=value`, over the values in `base`. Raises InvalidConfig."""
    known = {info.name: info for info in describe(config)}
    values = dict(base or {})
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise InvalidConfig(f"{word!r}: write name=value")
        values[name] = _parsed(known[name], text) if name in known else text
    return from_dict(config, values)


def to_dict(config: Any) -> dict[str, Any]:
    """The exact values of a configuration, for the record of a run."""
    return dataclasses.asdict(config)


def _parsed(info: FieldInfo, text: str) -> Any:
    if info.optional and text.lower() in ("none", ""):
        return None
    if info.type is bool:
        lowered = text.lower()
        if lowered in ("true", "yes", "1", "on"):
            return True
        if lowered in ("false", "no", "0", "off"):
            return False
        raise InvalidConfig(f"{info.name} = {text!r}: true or false is needed")
    try:
        return info.type(text)
    except ValueError:
        raise InvalidConfig(f"{info.name} = {text!r}: {_kind(info)} is needed") from None


def _checked(info: FieldInfo, value: Any) -> Any:
    if value is None and info.optional:
        return None
    if info.type is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, info.type) or (isinstance(value, bool) and info.type is not bool):
        raise InvalidConfig(f"{info.name} = {value!r}: {_kind(info)} is needed")
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidConfig(f"{info.name} = {value}: a finite number is needed")
    if info.choices and value not in info.choices:
        raise InvalidConfig(f"{info.name} = {value!r}: one of {', '.join(info.choices)} is needed")
    low, high = info.min, info.max
    number: Any = value
    if (low is not None and not number >= low) or (high is not None and not number <= high):
        limits = f"at least {low}" if high is None else f"at most {high}" if low is None else f"{low} to {high}"
        raise InvalidConfig(f"{info.name} = {value}: {limits} is allowed")
    return value


def _kind(info: FieldInfo) -> str:
    return {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}[info.type]


def _is_union(hint: Any) -> bool:
    return isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union
