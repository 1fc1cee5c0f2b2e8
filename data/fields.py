"""Configuration fields: one definition, from which the command line, the forms and the documentation are made.

A configuration is a frozen dataclass whose fields are made with `option`; a field may also be a group, another such
dataclass. Its values come from a dict (`from_dict`) or from words like `kl.coef=0.05` (`from_words`); unknown names,
wrong types and values out of range are refused by name. Names from before there were groups, like `kl_coef`, are still
read everywhere, from stored runs too.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from data.errors import InvalidConfig

ConfigT = TypeVar("ConfigT")


@dataclass(frozen=True)
class FieldInfo:
    """What a form or a help page needs to know of one field. `type` is bool, int, float or str.

    name: with its group, as `kl.coef`. flat: what it was called before there were groups. took_over: names of yes/no
    fields that are gone, and the value of this one that a yes meant.
    """

    name: str
    flat: str
    type: type
    optional: bool
    default: Any
    help: str
    unit: str
    min: float | None
    max: float | None
    choices: tuple[str, ...]
    group: str
    took_over: Mapping[str, str] = field(hash=False)


class Configuration:
    """The base of configurations and their groups: one that is made by hand is checked like one from a dict."""

    def __post_init__(self) -> None:
        for info in describe(type(self)):
            if "." not in info.name:
                object.__setattr__(self, info.name, _checked(info, getattr(self, info.name)))


def option(
    default: Any,
    help: str,
    *,
    unit: str = "",
    min: float | None = None,
    max: float | None = None,
    choices: tuple[str, ...] = (),
    group: str = "",
    flat: str = "",
    took_over: Mapping[str, str] | None = None,
) -> Any:
    """A dataclass field with its help, unit and limits. `group`: of a field that stands in no group of its own."""
    facts = {"help": help, "unit": unit, "min": min, "max": max, "choices": choices, "group": group, "flat": flat}
    return dataclasses.field(default=default, metadata=facts | {"took_over": took_over or {}})


def describe(config: type) -> list[FieldInfo]:
    """The fields of a configuration class: those in no group, then group by group, a base's last."""
    return list(_described(config))


@functools.cache
def _described(config: type) -> tuple[FieldInfo, ...]:
    hints = typing.get_type_hints(config)
    infos: list[FieldInfo] = []
    for each in dataclasses.fields(config):
        if isinstance(each.default, Configuration):
            for info in describe(type(each.default)):
                default = getattr(each.default, info.name)
                infos.append(
                    dataclasses.replace(info, name=f"{each.name}.{info.name}", group=each.name, default=default)
                )
            continue
        parts = typing.get_args(hints[each.name]) if _is_union(hints[each.name]) else (hints[each.name],)
        infos.append(
            FieldInfo(
                name=each.name,
                type=next(part for part in parts if part is not type(None)),
                optional=type(None) in parts,
                default=each.default,
                **{**each.metadata, "flat": each.metadata["flat"] or each.name},
            )
        )
    declared = dict.fromkeys(name for base in config.__mro__ for name in vars(base).get("__annotations__", {}))
    places = {name: place for place, name in enumerate(declared)}
    return tuple(sorted(infos, key=lambda info: places[info.group] + 1 if "." in info.name else 0))


def from_dict(config: type[ConfigT], values: Mapping[str, Any]) -> ConfigT:
    """Make a configuration. Raises InvalidConfig that names the field, what was given and what is allowed."""
    values, known = named_as_now(config, values), {info.name: info for info in describe(config)}
    for name in values:
        if name not in known:
            names = {name: name for name in known} | {info.flat: info.name for info in known.values()}
            close = [names[each] for each in difflib.get_close_matches(name, names, n=1)]
            advice = f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(known)}"
            raise InvalidConfig(f"{config.__name__} has no field {name!r}{advice}")
    own: dict[str, Any] = {}
    of_groups: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        group, dot, member = name.partition(".")
        (of_groups.setdefault(group, {}) if dot else own)[member or name] = _checked(known[name], value)
    for group, members in of_groups.items():
        own[group] = dataclasses.replace(getattr(config, group), **members)
    return config(**own)


def named_as_now(config: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by the names that fields have today: groups within are taken apart, and names from before there were
    groups become the new ones; names that no field ever had stay. Raises InvalidConfig where two are the same field."""
    infos = describe(config)
    names = {info.flat: info.name for info in infos} | {info.name: info.name for info in infos}
    groups = {info.group for info in infos if "." in info.name}
    taken_over = {former: (info.name, meant) for info in infos for former, meant in info.took_over.items()}
    renamed: dict[str, Any] = {}
    said: dict[str, str] = {}  # under which name each was given
    nothing: dict[str, Any] = {}  # what a "no" for a field that is gone leaves
    for given, value in _taken_apart(values, groups):
        name, now = names.get(given, given), value
        if given in taken_over:
            name, now = taken_over[given]
            if not value:
                nothing[name] = next(info.default for info in infos if info.name == name)
                continue
        if name in renamed and renamed[name] != now:
            raise InvalidConfig(f"{said[name]} and {given} are both {name}; choose one")
        renamed[name], said[name] = now, given
    return nothing | renamed


def _taken_apart(values: Mapping[str, Any], groups: set[str]) -> Iterable[tuple[str, Any]]:
    for name, value in values.items():
        if name in groups and isinstance(value, Mapping):
            yield from ((f"{name}.{member}", each) for member, each in value.items())
        else:
            yield name, value


def from_words(config: type[ConfigT], words: Iterable[str], base: Mapping[str, Any] | None = None) -> ConfigT:
    """Make a configuration from words like `name=value`, over the values in `base`. Raises InvalidConfig."""
    infos = describe(config)
    known = {info.flat: info for info in infos} | {info.name: info for info in infos}
    gone = {former: info for info in infos for former in info.took_over}
    given: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise InvalidConfig(f"{word!r}: write name=value")
        if name in gone:
            given[name] = _yes_or_no(name, text)
        else:
            given[name] = _parsed(known[name], text) if name in known else text
    return from_dict(config, named_as_now(config, base or {}) | named_as_now(config, given))


def to_dict(config: Any) -> dict[str, Any]:
    """The exact values of a configuration by the names of its fields, for the record of a run."""
    values: dict[str, Any] = {}
    for info in describe(type(config)):
        group, dot, member = info.name.partition(".")
        values[info.name] = getattr(getattr(config, group), member) if dot else getattr(config, group)
    return values


def with_values(config: ConfigT, values: Mapping[str, Any]) -> ConfigT:
    """The same configuration with other values, by any of their names. Raises InvalidConfig."""
    return from_dict(type(config), to_dict(config) | named_as_now(type(config), values))


def _parsed(info: FieldInfo, text: str) -> Any:
    if info.optional and text.lower() in ("none", ""):
        return None
    if info.type is bool:
        return _yes_or_no(info.name, text)
    try:
        return info.type(text)
    except ValueError:
        raise InvalidConfig(f"{info.name} = {text!r}: {_kind(info)} is needed") from None


def _yes_or_no(name: str, text: str) -> bool:
    lowered = text.lower()
    if lowered in ("true", "yes", "1", "on"):
        return True
    if lowered in ("false", "no", "0", "off"):
        return False
    raise InvalidConfig(f"{name} = {text!r}: true or false is needed")


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
