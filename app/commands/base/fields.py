"""Help pages of configuration fields, made from the fields themselves."""

from __future__ import annotations

import argparse

from data.fields import FieldInfo, describe

_FIRST, _NAME_WIDTH = "what to do", 32


def add_set(parser: argparse.ArgumentParser, what: str) -> None:
    """Add `--set field=value ...`."""
    parser.add_argument(
        "--set", nargs="+", action="extend", default=[], metavar="FIELD=VALUE", dest="fields", help=f"fields of {what}"
    )


def field_lines(config: type, without: type | None = None) -> list[str]:
    """The fields of a configuration, a line each, by group; those that `without` has alike are left out."""
    known = describe(without) if without else []
    groups: dict[str, list[FieldInfo]] = {_FIRST: []}
    for info in describe(config):
        if info not in known:
            groups.setdefault(info.group or _FIRST, []).append(info)
    lines = []
    for group, infos in groups.items():
        lines += [f"  {group}", *(f"    {_line(info)}" for info in infos)] if infos else []
    return lines


def _line(info: FieldInfo) -> str:
    default = "none" if info.default is None else info.default
    if info.type is bool:
        default = str(info.default).lower()
    facts = ", ".join(
        filter(None, [info.unit and f"in {info.unit}", _limits(info), "or none" if info.optional else ""])
    )
    return f"{f'{info.name}={default}':<{_NAME_WIDTH}} {info.help}{f' ({facts})' if facts else ''}"


def _limits(info: FieldInfo) -> str:
    if info.choices:
        return f"one of {', '.join(info.choices)}"
    if info.type is bool:
        return "true or false"
    low, high = (
        None if limit is None else f"{limit:g}" if limit < 1e5 else f"{limit:.0f}" for limit in (info.min, info.max)
    )
    if low is not None and high is not None:
        return f"{low} to {high}"
    return f"at least {low}" if low is not None else f"at most {high}" if high is not None else ""
