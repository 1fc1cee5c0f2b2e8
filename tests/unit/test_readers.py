"""Other tools' formats, by the smallest rows that those tools write (research notes, section 3.1)."""

from __future__ import annotations

from typing import Any

import pytest

from data.errors import InvalidInput
from labeling.files.parse import parse_ranking
from labeling.files.readers import READERS


def read(format_name: str, row: dict[str, Any]) -> list[dict[str, Any]]:
    """What a row holds, best first: prompt (its last message), responses in groups, annotator."""
    found = []
    for native in READERS[format_name](row):
        parsed = parse_ranking(native)
        order = {text.text: rank for text, rank in zip(parsed.responses, parsed.ranks or (), strict=bool(parsed.ranks))}
        groups = [[text for text in order if order[text] == rank] for rank in sorted(set(order.values()))]
        found.append(
            {
                "prompt": [each["content"] for each in parsed.prompt.messages],
                "best_first": groups,
                "annotator": parsed.annotator,
                "skip_reason": parsed.skip_reason,
            }
        )
    return found


def one(format_name: str, row: dict[str, Any]) -> list[list[str]]:
    [found] = read(format_name, row)
    best_first: list[list[str]] = found["best_first"]
    return best_first


LABEL_STUDIO = {
    "id": 7,
    "data": {
        "prompt": "Name a prime",
        "items": [{"id": "r_a", "title": "", "body": "9"}, {"id": "r_b", "title": "", "body": "7"}],
    },
    "predictions": [],
}


def annotated(*results: dict[str, Any], **annotation: object) -> dict[str, Any]:
    return LABEL_STUDIO | {"annotations": [{"id": 3, "completed_by": 2, "result": list(results)} | annotation]}


def ranker(value: object, name: str = "rank") -> dict[str, Any]:
    return {"from_name": name, "to_name": "answers", "type": "ranker", "value": {"ranker": value}}


@pytest.mark.parametrize(
    "result",
    [
        ranker({"rank": ["r_b", "r_a"]}),
        ranker(["r_b", "r_a"]),
        ranker({"my_ranker": ["r_b", "r_a"]}, "my_ranker"),
    ],
)
def test_label_studio_ranker_in_its_forms(result: dict[str, Any]) -> None:
    assert read("label-studio", annotated(result)) == [
        {"prompt": ["Name a prime"], "best_first": [["7"], ["9"]], "annotator": "2", "skip_reason": None}
    ]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"good": ["r_b"], "_": ["r_a"]}, "buckets are not in an order"),
        (["r_b"], r"the ranking names \['r_b'\], but the task's items are \['r_a', 'r_b'\]"),
        (["r_b", "r_x"], "the ranking names"),
        (["r_b", "r_b"], "the ranking names"),
    ],
)
def test_label_studio_rankings_that_are_none_are_refused(value: object, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        read("label-studio", annotated(ranker(value)))


def test_label_studio_items_under_another_name() -> None:
    row = annotated(ranker(["2", "1"]))
    row["data"] = {"instruction": "i", "candidates": [{"id": 1, "body": "x"}, {"id": 2, "html": "<b>y</b>"}]}
    assert one("label-studio", row) == [["<b>y</b>"], ["x"]]


def pairwise(selected: object) -> dict[str, Any]:
    row = annotated({"from_name": "pw", "to_name": ["a1", "a2"], "type": "pairwise", "value": {"selected": selected}})
    return row | {"data": {"prompt": "p", "answer1": "L", "answer2": "R"}}


def test_label_studio_pairwise() -> None:
    assert one("label-studio", pairwise("left")) == [["L"], ["R"]]
    assert one("label-studio", pairwise("right")) == [["R"], ["L"]]


@pytest.mark.parametrize("selected", [None, "", "tie", "Left"])
def test_a_pair_without_a_side_is_no_preference(selected: object) -> None:
    with pytest.raises(InvalidInput, match="'left' or 'right' is needed"):
        one("label-studio", pairwise(selected))


def test_label_studio_cancelled_is_a_skip() -> None:
    [found] = read("label-studio", annotated(was_cancelled=True))
    assert (found["best_first"], found["skip_reason"]) == ([], "cancelled in Label Studio")


def test_label_studio_without_an_annotation_has_no_ranking() -> None:
    assert read("label-studio", LABEL_STUDIO | {"annotations": []}) == []


ARGILLA = {
    "prompt": "Name a prime",
    "response_1": "9",
    "response_2": "7",
    "response_3": "seven",
    "quality.responses": [
        [
            {"value": "response_2", "rank": 1},
            {"value": "response_3", "rank": 1},
            {"value": "response_1", "rank": 3},
        ],
        [
            {"value": "response_1", "rank": 2},
            {"value": "response_2", "rank": 5},
            {"value": "response_3", "rank": 2},
        ],
        [{"value": "response_1", "rank": 1}],
    ],
    "quality.responses.users": ["5f", "6a", "7b"],
    "quality.responses.status": ["submitted", "submitted", "draft"],
    "quality.suggestion": [{"value": "response_2", "rank": 1}],
    "note.responses": ["a text question's answer"],
}


def test_argilla_ranks_with_ties_and_gaps_and_only_what_was_submitted() -> None:
    found = read("argilla", ARGILLA)
    assert [each["annotator"] for each in found] == ["5f", "6a"]
    assert [sorted(map(sorted, each["best_first"])) for each in found] == [
        [["7", "seven"], ["9"]],
        [["7"], ["9", "seven"]],
    ]
    assert found[0]["best_first"][-1] == ["9"]
    assert found[1]["best_first"][-1] == ["7"]


def reply(
    text: str, rank: int | None, *replies: dict[str, Any], role: str = "assistant", **more: object
) -> dict[str, Any]:
    return {"text": text, "role": role, "rank": rank, "replies": list(replies), **more}


def test_oasst_trees_give_one_ranking_for_each_prompt_with_ranked_replies() -> None:
    second = reply("and why?", None, reply("x", 1), reply("y", 0, model_name="m"), role="prompter")
    root = reply("Name a prime", None, reply("7", 0, second), reply("9", 2), reply("8", 1), role="prompter")
    found = read("oasst", {"prompt": root})
    assert found[0]["prompt"] == ["Name a prime"]
    assert found[0]["best_first"] == [["7"], ["8"], ["9"]]
    assert found[1]["prompt"] == ["Name a prime", "7", "and why?"]
    assert found[1]["best_first"] == [["y"], ["x"]]


def test_oasst_deleted_and_unranked_replies_and_equal_ranks() -> None:
    root = reply(
        "p", None, reply("a", 0), reply("b", 0), reply("gone", 1, deleted=True), reply("new", None), role="prompter"
    )
    assert one("oasst", {"prompt": root}) == [["a", "b"]]
    assert read("oasst", {"prompt": reply("p", None, reply("only", 0), role="prompter")}) == []


def battle(winner: str, **more: object) -> dict[str, Any]:
    def said(text: str) -> list[dict[str, Any]]:
        return [{"role": "user", "content": "p", "num_tokens": 1}, {"role": "assistant", "content": text}]

    sides = {"conversation_a": said("A"), "conversation_b": said("B"), "model_a": "m1", "model_b": "m2"}
    return {"winner": winner, "judge": "arena_user_1", **sides, **more}


@pytest.mark.parametrize(
    ("winner", "best_first"),
    [
        ("model_a", [["A"], ["B"]]),
        ("model_b", [["B"], ["A"]]),
        ("tie", [["A", "B"]]),
        ("tie (bothbad)", [["A", "B"]]),
    ],
)
def test_fastchat_battles(winner: str, best_first: list[list[str]]) -> None:
    assert one("fastchat", battle(winner)) == best_first


def test_fastchat_battles_that_can_not_be_ranked_are_refused() -> None:
    with pytest.raises(InvalidInput, match="'winner', 'conversation_a'"):
        one("fastchat", battle("nobody"))
    other = [{"role": "user", "content": "another"}, {"role": "assistant", "content": "B"}]
    with pytest.raises(InvalidInput, match="differ before the last turn"):
        one("fastchat", battle("tie", conversation_b=other))


HEAD = "\n\nHuman: a?\n\nAssistant: b\n\nHuman: c?\n\nAssistant:"


def test_hh_transcripts() -> None:
    [found] = read("hh", {"chosen": f"{HEAD} good ", "rejected": f"{HEAD} bad"})
    assert found["prompt"] == ["a?", "b", "c?"]
    assert found["best_first"] == [["good"], ["bad"]]


def test_what_stands_before_the_first_human_turn_is_kept() -> None:
    [found] = read("hh", {"chosen": f"Be kind.{HEAD} good", "rejected": f"Be kind.{HEAD} bad"})
    assert found["prompt"] == ["Be kind.", "a?", "b", "c?"]


@pytest.mark.parametrize(
    "row",
    [
        {"chosen": f"{HEAD} good", "rejected": "\n\nHuman: other\n\nAssistant: bad"},
        {"chosen": f"{HEAD} good", "rejected": f"{HEAD} bad\n\nHuman: more"},
        {"chosen": "no turns", "rejected": "no turns"},
        {"chosen": f"{HEAD} good"},
    ],
)
def test_hh_rows_that_are_none_are_refused(row: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        one("hh", row)


def said(*turns: str) -> list[dict[str, str]]:
    return [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(turns)]


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "p", "chosen": "good", "rejected": "bad"},
        {"prompt": said("p"), "chosen": said("x", "good")[1:], "rejected": said("x", "bad")[1:]},
        {"chosen": said("p", "good"), "rejected": said("p", "bad")},
        {"prompt": "p", "chosen": said("p", "good"), "rejected": said("p", "bad")},
        {"prompt": said("p"), "chosen": said("p", "good"), "rejected": said("p", "bad")},
    ],
)
def test_trl_rows_with_explicit_and_implicit_prompts(row: dict[str, Any]) -> None:
    [found] = read("trl", row)
    assert found["prompt"] == ["p"]
    assert found["best_first"] == [["good"], ["bad"]]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "p", "chosen": "x"}, "'chosen' and 'rejected' are needed"),
        ({"chosen": "x", "rejected": "y"}, "no 'prompt'"),
        ({"chosen": said("p", "x"), "rejected": said("q", "y")}, "must differ in the last message only"),
        ({"prompt": "other", "chosen": said("p", "x"), "rejected": said("p", "y")}, "are not the 'prompt'"),
        ({"prompt": "p", "chosen": None, "rejected": "y"}, "'chosen' and 'rejected' are needed"),
    ],
)
def test_trl_rows_that_can_not_be_read_are_refused(row: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        one("trl", row)


@pytest.mark.parametrize("format_name", [name for name in READERS if name != "native"])
def test_a_row_of_another_format_is_no_ranking(format_name: str) -> None:
    try:
        found = list(READERS[format_name]({"something": "else"}))
    except InvalidInput:
        found = []
    assert found == []
