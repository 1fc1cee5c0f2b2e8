"""A snapshot as token ids: what was cut or left out is counted, and weights keep their mean."""

from __future__ import annotations

from collections.abc import Sequence

import factories as make
import pytest
from tiny import END, STRICT_TEMPLATE, tiny_tokenizer

from data.errors import InvalidInput
from data.files.paths import Home
from data.labels.roles import OPERATOR
from data.records import Person, Project, Snapshot, Split
from data.store import Store
from labeling.snapshot.freeze import SnapshotConfig, freeze_snapshot
from training.lm.dataset import Encoded, encode_snapshot
from training.lm.encoding import Encoder

ENCODER = Encoder(tiny_tokenizer())


@pytest.fixture
def project(sqlite_store: Store) -> Project:
    return make.make_project(sqlite_store)


@pytest.fixture
def person(sqlite_store: Store) -> Person:
    return make.make_person(sqlite_store)


def frozen(store: Store, home: Home, project: Project) -> Snapshot:
    return freeze_snapshot(store, OPERATOR, home, project.id, SnapshotConfig(eval_share=0.0))


def encoded(home: Home, snapshot: Snapshot, max_length: int = 64, encoder: Encoder = ENCODER) -> Encoded:
    return encode_snapshot(home.snapshot_folder(snapshot.id), encoder, max_length)


def rank(store: Store, project: Project, person: Person, prompt: str, texts: Sequence[str], ranks: Sequence[int],
         split: Split | None = None) -> None:  # fmt: skip
    task = make.make_task(store, project, *texts, prompt=prompt, split=split)
    make.make_ranking(store, task, person, ranks)


def test_each_response_stands_after_its_prompt_and_ends(
    sqlite_store: Store, home: Home, project: Project, person: Person
) -> None:
    rank(sqlite_store, project, person, "why?", ["so", "thus", "hm"], [2, 1, 2])
    (group,) = encoded(home, frozen(sqlite_store, home, project)).train
    prompt = ENCODER.prompt_ids(({"role": "user", "content": "why?"},))
    wanted = {"so": 2, "thus": 1, "hm": 2}
    found = {ENCODER.decode(ids[len(prompt) :]): rank for ids, rank in zip(group.sequences, group.ranks, strict=True)}
    assert found == wanted
    assert all(ids[: len(prompt)] == prompt and ids[-1] == END for ids in group.sequences)
    assert group.prompt_lengths == [len(prompt)] * 3


def test_everything_that_is_cut_is_counted(sqlite_store: Store, home: Home, project: Project, person: Person) -> None:
    rank(sqlite_store, project, person, "p" * 30, ["a", "bb"], [1, 2])  # its prompt is too long
    rank(sqlite_store, project, person, "q", ["c" * 50, "d" * 40, "e"], [1, 2, 3])  # two responses are, too
    rank(sqlite_store, project, person, "r", ["f" * 40 + "1", "f" * 40 + "2", "g"], [1, 2, 3])  # two become the same
    rank(sqlite_store, project, person, "s", ["h" * 40 + "1", "h" * 40 + "2"], [1, 2])  # and here no pair is left
    rank(sqlite_store, project, person, "t", ["i", "j"], [1, 2])
    found = encoded(home, frozen(sqlite_store, home, project), max_length=24)
    assert dict(found.counts) == {
        "prompts_refused": 0,
        "prompts_cut": 4,
        "responses_cut": 6,
        "responses_same_when_cut": 2,
        "groups_without_pair": 1,
    }
    assert sorted(group.n_responses for group in found.train) == [2, 2, 2, 3]
    assert all(len(ids) <= 24 and ids[-1] == END for group in found.train for ids in group.sequences)


def test_prompts_that_the_template_refuses_are_counted(
    sqlite_store: Store, home: Home, project: Project, person: Person
) -> None:
    rank(sqlite_store, project, person, "fine", ["a", "b"], [1, 2])
    snapshot = frozen(sqlite_store, home, project)
    assert encoded(home, snapshot).counts["prompts_refused"] == 0
    refusing = STRICT_TEMPLATE.replace("== 'system'", "== 'user'")
    with pytest.raises(InvalidInput, match=r"no ranking with a pair \(counted: prompts_refused 1\); rank"):
        encoded(home, snapshot, encoder=Encoder(tiny_tokenizer(template=refusing)))


def test_a_prompt_ranked_twice_weighs_as_much_as_one_ranked_once(sqlite_store: Store, home: Home) -> None:
    project = make.make_project(sqlite_store, overlap=2)
    people = [make.make_person(sqlite_store) for _ in range(2)]
    twice = make.make_task(sqlite_store, project, "a", "b", prompt="twice")
    for person in people:
        make.make_ranking(sqlite_store, twice, person, [1, 2])
    once = make.make_task(sqlite_store, project, "c", "d", prompt="once")
    make.make_ranking(sqlite_store, once, people[0], [1, 2])
    groups = encoded(home, frozen(sqlite_store, home, project)).train
    weights: dict[str, float] = {}
    for group in groups:
        weights[group.prompt_id] = weights.get(group.prompt_id, 0) + group.weight
    assert len(groups) == 3
    assert sum(group.weight for group in groups) / 3 == pytest.approx(1)
    assert list(weights.values()) == pytest.approx([1.5, 1.5])


def test_a_snapshot_without_a_training_ranking_is_refused(
    sqlite_store: Store, home: Home, project: Project, person: Person
) -> None:
    rank(sqlite_store, project, person, "held out", ["a", "b"], [1, 2], split=Split.EVAL)
    with pytest.raises(InvalidInput, match="training side has no ranking with a pair; rank more prompts"):
        encoded(home, frozen(sqlite_store, home, project))


def test_both_sides_are_kept_apart(sqlite_store: Store, home: Home, project: Project, person: Person) -> None:
    rank(sqlite_store, project, person, "held out", ["a", "b"], [1, 2], split=Split.EVAL)
    rank(sqlite_store, project, person, "to learn", ["a", "b"], [1, 2], split=Split.TRAIN)
    found = encoded(home, frozen(sqlite_store, home, project))
    assert len(found.train) == len(found.held_out) == 1
    assert "held out" in ENCODER.show(found.held_out[0].sequences[0])
