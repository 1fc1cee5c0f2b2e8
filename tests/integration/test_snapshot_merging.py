"""Several annotators of a task in one snapshot: how many agree, soft pairs, who counts how much, and nothing lost."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import factories as make
import pytest
import sqlalchemy as sa
from check_work import answer, make_gold_task, settle

from data.errors import InvalidInput
from data.files.paths import Home
from data.files.snapshots import OTHERS, Group, content_hash, read_groups, read_parquet
from data.labels.check_slots import claim_gold
from data.labels.rankings import current_rankings, save_ranking
from data.labels.roles import OPERATOR
from data.records import (
    Detail,
    NewRanking,
    Person,
    Project,
    RankingStatus,
    Snapshot,
    Split,
    SubmitOutcome,
    Task,
)
from data.store import Store
from data.store.tables import slot
from labeling.files.imports import import_rankings
from labeling.snapshot.export import FORMATS, export_snapshot
from labeling.snapshot.freeze import AnnotatorWeights, SnapshotConfig, freeze_snapshot, plan_snapshot
from labeling.snapshot.groups import Merge

SOFT = Merge.SOFT.value


def three_people(store: Store, *rankings: tuple[int, ...], split: Split | None = None) -> tuple[Project, Task]:
    """A project of three annotators per task, with one task, ranked so by as many."""
    project = make.make_project(store, overlap=len(rankings))
    task = make.make_task(store, project, *"abcd"[: len(rankings[0])], prompt="p", split=split)
    for ranks in rankings:
        make.make_ranking(store, task, make.make_person(store), ranks)
    return project, task


def freeze(store: Store, home: Home, project: Project, **settings: Any) -> Snapshot:
    return freeze_snapshot(store, OPERATOR, home, project.id, SnapshotConfig(**({"eval_share": 0.0} | settings)))


def groups_of(home: Home, frozen: Snapshot) -> list[Group]:
    return list(read_groups(home.snapshot_folder(frozen.id)))


def pairs_of(home: Home, frozen: Snapshot) -> dict[tuple[str, str], list[tuple[int, int, float, float]]]:
    """What stands beside each pair: agreeing, annotators, probability, weight."""
    found: dict[tuple[str, str], list[tuple[int, int, float, float]]] = {}
    for row in read_parquet(home.snapshot_folder(frozen.id) / "pairs.parquet"):
        facts = (row["n_agree"], row["n_annotators"], row["probability"], row["weight"])
        found.setdefault((row["chosen"], row["rejected"]), []).append(facts)
    return found


def test_every_ranking_by_itself_says_how_many_agree(store: Store, home: Home) -> None:
    """Two put a before b, one the other way round; all see c last, one of them tied with b."""
    project, _ = three_people(store, (1, 2, 3), (1, 2, 2), (2, 1, 3))
    frozen = freeze(store, home, project)
    found = {
        pair: [(agree, of, sure) for agree, of, sure, _ in facts] for pair, facts in pairs_of(home, frozen).items()
    }
    assert found == {
        ("a", "b"): [(2, 3, 1.0)] * 2, ("b", "a"): [(1, 3, 1.0)], ("a", "c"): [(3, 3, 1.0)] * 3,
        ("b", "c"): [(2, 3, 1.0)] * 2,
    }  # fmt: skip
    assert (frozen.counts["groups"], frozen.counts["rankings_used"]) == (3, 3)


def test_soft_pairs_are_as_sure_as_their_annotators_agree(store: Store, home: Home) -> None:
    project, _ = three_people(store, (1, 2, 3), (1, 2, 2), (2, 1, 3))
    frozen = freeze(store, home, project, merge=SOFT)
    third = pytest.approx(1 / 3)
    assert pairs_of(home, frozen) == {
        ("a", "b"): [(2, 3, pytest.approx(2 / 3), third)], ("a", "c"): [(3, 3, 1.0, third)],
        ("b", "c"): [(2, 3, pytest.approx((2 + 0.5) / 3), third)],
    }  # fmt: skip
    (group,) = groups_of(home, frozen)
    assert (group.ranks, group.weight, len(group.annotator.split(","))) == ((1, 2, 3), 1.0, 3)
    with store.read() as tx:
        assert group.ranking_id.split(",") == [each.id for each, _ in current_rankings(tx, project.id)]
    counts = frozen.counts
    assert (counts["groups"], counts["rankings_used"], counts["annotators"], counts["pairs"]) == (1, 3, 3, 3)
    assert (counts["ties"], counts["evenly_split"], counts["responses_per_ranking"]) == (0, 0, {"3": 3})


def test_an_even_split_has_no_side_and_is_counted(store: Store, home: Home) -> None:
    """a and b are turned round; c and d are tied for one and told apart by the other."""
    project, _ = three_people(store, (1, 2, 3, 3), (2, 1, 3, 4))
    frozen = freeze(store, home, project, merge=SOFT)
    assert set(pairs_of(home, frozen)) == {("a", "c"), ("a", "d"), ("b", "c"), ("b", "d"), ("c", "d")}
    assert pairs_of(home, frozen)["c", "d"][0][:3] == (1, 2, 0.75)
    assert [frozen.counts[name] for name in ("pairs", "evenly_split", "ties", "not_compared")] == [5, 1, 0, 0]
    (group,) = groups_of(home, frozen)
    assert group.ranks == (1, 1, 3, 4)
    assert [group.probabilities[place] for place in (0 * 4 + 1, 1 * 4 + 0)] == [0.5, 0.5]
    manifest = export_snapshot(home, frozen, "trl", home.exports / "out")
    assert manifest["left_out"] == {"pairs on which annotators are evenly split": 1}


def test_what_can_not_be_decided_is_left_out_under_its_name(store: Store, home: Home) -> None:
    project, _ = three_people(store, (1, 2), (2, 1))
    with pytest.raises(InvalidInput, match="there is no pair to freeze: 2 evenly split"):
        freeze(store, home, project, merge=SOFT)
    assert plan_snapshot(store, project.id, SnapshotConfig(merge=SOFT)).counts["rankings_used"] == 0
    tied, _ = three_people(store, (1, 1), (1, 1))
    assert plan_snapshot(store, tied.id, SnapshotConfig(merge=SOFT)).counts["left_out"]["all_tied"] == 2


def test_a_circle_gives_soft_pairs_and_no_order(store: Store, home: Home) -> None:
    project, _ = three_people(store, (1, 2, 3), (2, 3, 1), (3, 1, 2))
    frozen = freeze(store, home, project, merge=SOFT)
    assert set(pairs_of(home, frozen)) == {("a", "b"), ("b", "c"), ("c", "a")}
    assert [group.ranks for group in groups_of(home, frozen)] == [(1, 1, 1)]


def test_one_annotator_merged_is_what_they_said(store: Store, home: Home) -> None:
    project = make.make_ranked_project(store, n_prompts=4)
    each, soft = (freeze(store, home, project, merge=merge) for merge in ("each", SOFT))
    assert each.content_hash == soft.content_hash
    assert each.counts == soft.counts


def test_what_nobody_compared_gives_nothing_when_merged(store: Store, home: Home) -> None:
    project = make.make_project(store, overlap=2)
    task = make.make_task(store, project, *"abcd", prompt="p")
    for said in ((True, None, False, None), (True, False, None, None)):
        detail = Detail(unplaced=(1, 2, 3), acceptable=said)
        make.make_ranking(store, task, make.make_person(store), [1, 2, 2, 2], detail=detail)
    frozen = freeze(store, home, project, merge=SOFT)
    assert set(pairs_of(home, frozen)) == {("a", "b"), ("a", "c"), ("a", "d")}
    assert [frozen.counts[name] for name in ("ties", "evenly_split", "not_compared")] == [0, 0, 3]
    assert groups_of(home, frozen)[0].acceptable == (True, False, False, None)


def unreliable(store: Store) -> tuple[Project, list[Person]]:
    """Two who agree on thirty tasks, one who ranks them at odds, and a last task that only he and the first have."""
    project = make.make_project(store, overlap=3)
    people = [make.make_person(store) for _ in range(3)]
    for number in range(30):
        task = make.make_task(store, project, "a", "b", "c", prompt=f"prompt {number}")
        for person in people[:2]:
            make.make_ranking(store, task, person, [1, 2, 3])
        make.make_ranking(store, task, people[2], [(3, 2, 1), (2, 3, 1), (1, 2, 3)][number % 3])
    last = make.make_task(store, project, "a", "b", prompt="last")
    make.make_ranking(store, last, people[0], [1, 2])
    make.make_ranking(store, last, people[2], [2, 1])
    return project, people


def test_an_annotator_at_odds_with_the_others_counts_less(store: Store, home: Home) -> None:
    project, _ = unreliable(store)
    weighted = {"annotator_weights": AnnotatorWeights.DAWID_SKENE.value}
    # One against one is an even split, as long as both count the same.
    equal = groups_of(home, freeze(store, home, project, merge=SOFT))
    assert "last" not in {group.messages[-1]["content"] for group in equal}
    soft = groups_of(home, freeze(store, home, project, merge=SOFT, **weighted))
    last = next(group for group in soft if group.messages[-1]["content"] == "last")
    assert last.ranks == (1, 2)
    assert last.probabilities[1] > 0.8
    each = groups_of(home, freeze(store, home, project, **weighted))
    of_last = [group.weight for group in each if group.messages[-1]["content"] == "last"]
    assert sum(of_last) == pytest.approx(1)
    assert of_last[0] > 0.8
    again = freeze(store, home, project, **weighted)
    assert again.content_hash == content_hash(each)


def test_gold_makes_nobody_count_less_where_the_project_keeps_it_out(store: Store, home: Home) -> None:
    """Two people must have met the gold: nobody's accuracy is estimated from what they alone compared."""
    project, people = unreliable(store)
    weighted = {"merge": SOFT, "annotator_weights": AnnotatorWeights.DAWID_SKENE.value}
    before = freeze(store, home, project, **weighted)
    for _ in range(12):
        make_gold_task(store, project)
    for person, ranks in ((people[0], (1, 2, 3)), (people[2], (3, 2, 1))):
        for _ in range(12):
            with store.begin() as tx:
                [given] = claim_gold(tx, project.id, person.id)
            answer(store, person, given, ranks)
    kept_out = freeze(store, home, project, **weighted)
    assert kept_out.counts["left_out"]["gold"] == 24
    assert kept_out.content_hash == before.content_hash
    settle(store, project, gold_in_snapshots=True)
    taken_in = groups_of(home, freeze(store, home, project, **weighted))
    of_last = [
        next(group.probabilities[1] for group in groups if group.messages[-1]["content"] == "last")
        for groups in (groups_of(home, before), taken_in)
    ]
    assert of_last[0] < of_last[1]


def test_the_weights_of_a_prompt_sum_to_one_however_it_is_merged(store: Store, home: Home) -> None:
    project, _ = unreliable(store)
    for merge in Merge:
        for weights in AnnotatorWeights:
            frozen = freeze(store, home, project, merge=merge.value, annotator_weights=weights.value)
            sums: dict[str, float] = {}
            for group in groups_of(home, frozen):
                sums[group.prompt_id] = sums.get(group.prompt_id, 0) + group.weight
            assert sums == pytest.approx(dict.fromkeys(sums, 1.0))


def test_how_well_people_foretell_each_other_on_the_held_out_side(store: Store, home: Home) -> None:
    """Held out: (1, 2, 3), (1, 2, 2), (2, 1, 3). One against another: 2.5/3, 2/3, 2/2, 1/2, 2/3, 1.5/3."""
    project, _ = three_people(store, (1, 2, 3), (1, 2, 2), (2, 1, 3), split=Split.EVAL)
    train = make.make_task(store, project, "a", "b", prompt="other", split=Split.TRAIN)
    for ranks in ((1, 2), (2, 1)):
        make.make_ranking(store, train, make.make_person(store), ranks)
    for merge in Merge:
        counts = freeze(store, home, project, merge=merge.value).counts if merge is Merge.EACH else plan_snapshot(
            store, project.id, SnapshotConfig(merge=merge.value)).counts  # fmt: skip
        shares = [2.5 / 3, 2 / 3, 2 / 2, 1 / 2, 2 / 3, 1.5 / 3]
        assert counts["human_pair_accuracy"] == pytest.approx(sum(shares) / 6)
        assert counts["human_pair_accuracy_n"] == 6
    alone = make.make_ranked_project(store)
    counts = plan_snapshot(store, alone.id, SnapshotConfig(eval_share=0.5)).counts
    assert (counts["human_pair_accuracy"], counts["human_pair_accuracy_n"]) == (None, 0)


def test_an_unacceptable_answer_is_kept_beside_the_groups(store: Store, home: Home) -> None:
    project = make.make_project(store, overlap=2)
    ann, bob = make.make_person(store), make.make_person(store)
    both = make.make_task(store, project, "a", "b", prompt="both")
    make.make_ranking(store, both, ann, [1, 2])
    make.make_ranking(store, both, bob, status=RankingStatus.UNACCEPTABLE, comment="wrong")
    alone = make.make_task(store, project, "c", "d", prompt="alone", split=Split.EVAL)
    make.make_ranking(store, alone, bob, status=RankingStatus.UNACCEPTABLE)
    before = freeze(store, home, make.make_ranked_project(store))
    assert not (home.snapshot_folder(before.id) / OTHERS).exists()
    frozen = freeze(store, home, project)
    rows = list(read_parquet(home.snapshot_folder(frozen.id) / OTHERS))
    assert [(row["responses"], row["ranks"], row["split"], row["comment"]) for row in rows] == [
        (["a", "b"], [], "train", "wrong"), (["c", "d"], [], "eval", ""),
    ]  # fmt: skip
    manifest = json.loads((home.snapshot_folder(frozen.id) / "manifest.json").read_text())
    assert set(manifest["files"]) == {"groups.parquet", "pairs.parquet", "prompts.parquet", OTHERS}
    assert frozen.content_hash != content_hash(read_groups(home.snapshot_folder(frozen.id)))
    made = export_snapshot(home, frozen, "unpaired", home.exports / "out")
    assert made["rows"] == {"train": 4, "eval": 2}
    found = [
        (row["completion"][0]["content"], row["label"])
        for side in ("train", "eval")
        for row in read_parquet(home.exports / "out" / f"{side}.parquet")
    ]
    assert found == [("a", True), ("b", False), ("a", False), ("b", False), ("c", False), ("d", False)]


def every_kind_of_answer(store: Store) -> Project:
    """Two rankings at odds, a tie, an unacceptable answer and a skip with all there is to say, and an extra one."""
    project = make.make_project(store, overlap=2)
    ann, bob, cy = (make.make_person(store) for _ in range(3))
    both = make.make_task(store, project, "a", "b", "c", prompt="both")
    detail = Detail((1, 2), (True, None, False), (("rude",), (), ()), (7, None, 1), 4)
    late = make.lease(store, both, cy)
    with store.begin() as tx:  # somebody takes the slot over, so that what comes under the lease is one too many
        tx.execute(sa.update(slot).where(slot.c.annotator_id == cy.id).values(annotator_id=None, status="free"))
    make.make_ranking(store, both, ann, [1, 2, 2], detail=detail, comment="because")
    make.make_ranking(store, both, bob, [2, 1, 3])
    with store.begin() as tx:
        new = NewRanking(both.id, cy.id, "late-key", RankingStatus.RANKED, (3, 2, 1), (0, 1, 2), lease_token=late)
        assert save_ranking(tx, new) is SubmitOutcome.STORED
    other = make.make_task(store, project, "d", "e", prompt="other", split=Split.EVAL)
    make.make_ranking(store, other, ann, [1, 1])
    make.make_ranking(store, other, bob, status=RankingStatus.UNACCEPTABLE, comment="wrong")
    make.make_ranking(store, other, cy)
    return project


def answers_of(home: Home, frozen: Snapshot, folder: str) -> list[dict[str, Any]]:
    export_snapshot(home, frozen, "answers", home.exports / folder)
    paths = sorted((home.exports / folder).glob("*.jsonl"))
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


@pytest.mark.parametrize("merge", Merge)
def test_every_answer_is_in_an_export_once_with_what_became_of_it(store: Store, home: Home, merge: Merge) -> None:
    project = every_kind_of_answer(store)
    frozen = freeze(store, home, project, merge=merge.value)
    rows = answers_of(home, frozen, "out")
    with store.read() as tx:
        stored = {each.id: each for each, _ in current_rankings(tx, project.id)}
    assert sorted(row["ranking_id"] for row in rows) == sorted(stored)
    for row in rows:
        answer = stored[row["ranking_id"]]
        assert (row["status"], tuple(row["ranks"]), row["comment"]) == (
            answer.status.value, answer.ranks or (), answer.comment,
        )  # fmt: skip
        assert (tuple(row["unplaced"]), row["strength"]) == (answer.detail.unplaced, answer.detail.strength)
        assert row["skip_reason"] == answer.skip_reason
    used = None if merge is Merge.EACH else "merged"
    found = Counter((row["prompt"][0]["content"], row["status"], row["left_out"]) for row in rows)
    assert found == {
        ("both", "ranked", used): 2, ("both", "ranked", "extra"): 1, ("other", "ranked", "all_tied"): 1,
        ("other", "unacceptable", "unacceptable"): 1, ("other", "skipped", "skipped"): 1,
    }  # fmt: skip
    left_out = {name: number for name, number in frozen.counts["left_out"].items() if number}
    assert left_out == {"extra": 1, "all_tied": 1, "unacceptable": 1, "skipped": 1}


def test_exported_answers_come_back_as_they_were(sqlite_store: Store, home: Home) -> None:
    first, second = every_kind_of_answer(sqlite_store), make.make_project(sqlite_store)
    one = answers_of(home, freeze(sqlite_store, home, first), "one")
    for path in sorted((home.exports / "one").glob("*.jsonl")):
        report = import_rankings(sqlite_store, OPERATOR, second.id, path)
        assert (report.problems, report.counts["known"]) == ([], 0)
    two = answers_of(home, freeze(sqlite_store, home, second, include_extra=True), "two")
    said = [name for name in FORMATS["answers"].columns if name != "annotator"]
    assert sorted(json.dumps([row[name] for name in said]) for row in one) == sorted(
        json.dumps([row[name] for name in said]) for row in two
    )
    assert len({row["annotator"] for row in two}) == 3


def test_an_extra_answer_is_left_out_of_what_models_learn_from(store: Store, home: Home) -> None:
    """Also one that no response is acceptable; a skip changes nothing that models learn from, so not the hash."""
    project = make.make_project(store, overlap=1)
    task = make.make_task(store, project, "a", "b", prompt="p")
    make.make_ranking(store, task, make.make_person(store), [1, 2])
    before = freeze(store, home, project)
    with store.begin() as tx:
        for number, status in enumerate((RankingStatus.UNACCEPTABLE, RankingStatus.SKIPPED)):
            reason = "no" if status is RankingStatus.SKIPPED else None
            who = make.make_person(tx)
            save_ranking(tx, NewRanking(task.id, who.id, f"extra-{number}", status, None, (0, 1), skip_reason=reason))
    after = freeze(store, home, project)
    assert after.content_hash == before.content_hash
    assert (after.counts["left_out"]["extra"], after.counts["left_out"]["skipped"]) == (1, 1)
    assert export_snapshot(home, after, "unpaired", home.exports / "out")["rows"] == {"train": 2, "eval": 0}
    taken_in = freeze(store, home, project, include_extra=True)
    assert taken_in.content_hash != before.content_hash
    assert export_snapshot(home, taken_in, "unpaired", home.exports / "in")["rows"] == {"train": 4, "eval": 0}


def test_of_several_best_responses_the_place_decides_nothing() -> None:
    def best(texts: tuple[str, ...], ranks: tuple[int, ...]) -> str:
        return Group("r", "t", "p", Split.TRAIN, (), texts, (), (), ranks, "ann", 1.0).best

    assert best(("a", "b", "c"), (2, 1, 3)) == "b"
    assert best(("a", "b", "c"), (1, 1, 3)) == best(("b", "a", "c"), (1, 1, 3))
    drawn = {best((f"one {number}", f"two {number}"), (1, 1)).split()[0] for number in range(20)}
    assert drawn == {"one", "two"}


def test_the_hash_of_a_plain_ranking_is_what_it_always_was() -> None:
    """Columns that came later are in it only where they say something."""
    group = Group(
        "r", "t", "p", Split.TRAIN, ({"role": "user", "content": "?"},), ("a", "b"), ("1", "2"), ("m", "m"), (1, 2),
        "ann", 1.0,
    )  # fmt: skip
    assert content_hash([group]) == "807cded0f682c51aa0ea9d40e4001055f1ae46423b94f12e1f9b5f52b2be258b"
