"""Adjudication: which tasks wait for it, what is decided and stored, and what snapshots make of it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import factories as make
import pytest
import sqlalchemy as sa

from data.errors import Conflict, InvalidInput, NotAllowed, NotFound
from data.files.paths import Home
from data.files.snapshots import OTHERS, read_groups, read_parquet
from data.label_settings import LabelSettings
from data.labels.adjudications import adjudication_of, current_adjudications
from data.labels.projects import set_settings
from data.labels.rankings import answer_of, current_rankings, edit_ranking
from data.labels.roles import OPERATOR
from data.records import Adjudication, Detail, NewRanking, Person, Project, RankingStatus, Role, Task
from data.store import Store
from data.store.tables_adjudication import adjudication
from labeling.review.adjudication import MAX_REASON, decide, disputed_tasks, open_case
from labeling.snapshot.export import export_snapshot
from labeling.snapshot.freeze import SnapshotConfig, freeze_snapshot, plan_snapshot
from labeling.work.session import history, next_work


class Dispute:
    """A project of two annotators per task, with a task that they rank the other way round."""

    def __init__(self, store: Store, below: float = 0.5) -> None:
        self.store = store
        self.project: Project = make.make_project(store, overlap=2)
        self.ask(below)
        self.ann, self.bob = make.make_person(store), make.make_person(store)
        self.boss = make.make_person(store, Role.RESEARCHER)
        self.task = self.ranked((1, 2, 3), (3, 2, 1))

    def ask(self, below: float) -> None:
        with self.store.begin() as tx:
            set_settings(tx, self.project.id, settings=LabelSettings(adjudicate_below=below))

    def ranked(self, ann: tuple[int, ...], bob: tuple[int, ...], detail: Detail | None = None) -> Task:
        task = make.make_task(self.store, self.project, *"abcd"[: len(ann)], prompt=f"prompt {ann} {bob}")
        make.make_ranking(self.store, task, self.ann, ann, detail=detail)
        make.make_ranking(self.store, task, self.bob, bob)
        return task

    def waiting(self) -> list[str]:
        return [each.task_id for each in disputed_tasks(self.store, self.project.id)]

    def decide(self, task: Task | None = None, person: Person | None = None, **words: Any) -> Adjudication:
        task = task or self.task
        case = open_case(self.store, self.project.id, task.id)
        given = {"reason": "b is wrong", "submission_key": f"key {len(self.rows())}", "seen": case.seen}
        given |= {"supersedes_id": case.decision.id if case.decision else None} | words
        if "ranks" not in words and "chosen_id" not in words:
            given["chosen_id"] = next(each.id for each in case.rankings if each.annotator_id == self.ann.id)
        return decide(self.store, person or self.boss, self.project.id, task.id, **given)

    def edit(self, person: Person, ranks: tuple[int, ...]) -> None:
        with self.store.begin() as tx:
            old = answer_of(tx, self.task.id, person.id)
            new = NewRanking(
                self.task.id, person.id, f"edit {old.version} {person.id}", RankingStatus.RANKED, ranks, (0, 1, 2)
            )
            edit_ranking(tx, old.id, new)

    def rows(self) -> list[Any]:
        with self.store.read() as tx:
            return tx.rows(sa.select(adjudication).order_by(adjudication.c.created_at, adjudication.c.id))


def test_tasks_below_the_threshold_wait_the_worst_first(store: Store) -> None:
    """Of 3 pairs, the annotators agree on none, on one, on two (0.67), and on all."""
    dispute = Dispute(store)
    one = dispute.ranked((1, 2, 3), (2, 3, 1))
    dispute.ranked((1, 2, 3), (1, 3, 2))
    dispute.ranked((1, 2, 3), (1, 2, 3))
    alone = make.make_task(store, dispute.project)
    make.make_ranking(store, alone, dispute.ann, [1, 2, 3])
    found = disputed_tasks(store, dispute.project.id)
    assert [(each.task_id, each.agreement, each.n, each.n_rankings) for each in found] == [
        (dispute.task.id, 0.0, 3, 2), (one.id, pytest.approx(1 / 3), 3, 2),
    ]  # fmt: skip
    dispute.ask(0.7)
    assert len(dispute.waiting()) == 3
    dispute.ask(1 / 3)  # not below it
    assert dispute.waiting() == [dispute.task.id]
    dispute.ask(0)
    assert dispute.waiting() == []


def test_a_tie_against_an_order_is_no_agreement_and_a_rest_is_not_compared(store: Store) -> None:
    dispute = Dispute(store)
    dispute.ranked((1, 1, 3), (1, 2, 3))
    rest = dispute.ranked((1, 2, 2), (2, 1, 3), detail=Detail(unplaced=(1, 2)))
    dispute.ask(1.0)
    found = {each.task_id: (each.agreement, each.n) for each in disputed_tasks(store, dispute.project.id)}
    assert sorted(found.values()) == [(0.0, 3), (0.5, 2), (pytest.approx(2 / 3), 3)]
    assert found[rest.id] == (0.5, 2)


def test_a_task_waits_that_some_rank_and_others_find_unacceptable(store: Store) -> None:
    """However well those who rank agree, and also where only one ranks; where all find it unacceptable, none waits."""
    dispute = Dispute(store, below=0.3)
    agreed = dispute.ranked((1, 2, 3), (1, 2, 3))
    one, nobody, skipped = (make.make_task(store, dispute.project, prompt=f"prompt {n}") for n in range(3))
    cat = make.make_person(store)
    make.make_ranking(store, agreed, cat, status=RankingStatus.UNACCEPTABLE)
    make.make_ranking(store, one, dispute.ann, [1, 2, 3])
    make.make_ranking(store, one, dispute.bob, status=RankingStatus.UNACCEPTABLE)
    for person in (dispute.ann, dispute.bob):
        make.make_ranking(store, nobody, person, status=RankingStatus.UNACCEPTABLE)
    make.make_ranking(store, skipped, dispute.ann, [1, 2, 3])
    make.make_ranking(store, skipped, dispute.bob)
    found = disputed_tasks(store, dispute.project.id)
    assert [(each.task_id, each.agreement, each.n, each.n_rankings, each.n_unacceptable) for each in found] == [
        (dispute.task.id, 0.0, 3, 2, 0), (one.id, None, 0, 1, 1), (agreed.id, 1.0, 3, 2, 1),
    ]  # fmt: skip
    dispute.ask(0)
    assert dispute.waiting() == []


def test_who_finds_it_unacceptable_after_the_decision_brings_the_task_back(store: Store, home: Home) -> None:
    dispute = Dispute(store)
    one = make.make_task(store, dispute.project, prompt="one ranks it")
    make.make_ranking(store, one, dispute.ann, [1, 2, 3])
    make.make_ranking(store, one, dispute.bob, status=RankingStatus.UNACCEPTABLE)
    dispute.decide(dispute.task)
    case = open_case(store, dispute.project.id, one.id)
    assert (case.agreement, case.n_unacceptable, len(case.seen)) == (None, 1, 2)
    made = dispute.decide(one)
    assert made.agreement is None and set(made.seen) == {each.id for each in case.answers}
    assert dispute.waiting() == []
    counts = plan_snapshot(store, dispute.project.id, SnapshotConfig()).counts
    assert (counts["adjudicated"], counts["left_out"]["overruled"]) == (2, 4)
    make.make_ranking(store, one, make.make_person(store), status=RankingStatus.UNACCEPTABLE)
    (again,) = disputed_tasks(store, dispute.project.id)
    assert (again.task_id, again.is_again, again.n_unacceptable) == (one.id, True, 2)


def test_a_decision_by_a_ranking_is_stored_with_who_when_and_why(store: Store, clock: Any) -> None:
    dispute = Dispute(store)
    case = open_case(store, dispute.project.id, dispute.task.id)
    by_person = {each.annotator_id: each.id for each in case.rankings}
    assert set(by_person) == {dispute.ann.id, dispute.bob.id}
    made = dispute.decide(chosen_id=by_person[dispute.bob.id], reason="  c is right \n")
    assert made == Adjudication(
        id=made.id, task_id=dispute.task.id, decided_by=dispute.boss.id, ranks=(3, 2, 1), unplaced=(),
        chosen_id=by_person[dispute.bob.id], reason="c is right", seen=case.seen, agreement=0.0, supersedes_id=None,
        created_at=made.created_at,
    )  # fmt: skip
    assert made.created_at == clock()
    with store.read() as tx:
        assert adjudication_of(tx, dispute.task.id) == made
        assert current_adjudications(tx, dispute.project.id) == [made]
    assert dispute.waiting() == []


def test_a_rest_in_no_order_stays_one_when_it_is_chosen(store: Store, home: Home) -> None:
    dispute = Dispute(store)
    task = dispute.ranked((1, 2, 2), (2, 1, 3), detail=Detail(unplaced=(1, 2)))
    assert dispute.decide(task).unplaced == (1, 2)
    frozen = freeze_snapshot(store, OPERATOR, home, dispute.project.id, SnapshotConfig(eval_share=0))
    group = next(each for each in read_groups(home.snapshot_folder(frozen.id)) if each.adjudicated)
    assert (group.ranks, group.unplaced) == ((1, 2, 2), (1, 2))
    assert frozen.counts["not_compared"] == 1


def test_ranks_of_one_s_own_are_checked(store: Store) -> None:
    dispute = Dispute(store)
    assert dispute.decide(ranks=[1, 2, 2]).ranks == (1, 2, 2)
    for words, error, said in (
        ({"ranks": [1, 2]}, InvalidInput, "2 ranks for 3 responses"),
        ({"ranks": [1, 3, 3]}, InvalidInput, "have a gap"),
        ({"ranks": [1, 2, 3], "reason": " \n"}, InvalidInput, "the reason has 0 characters"),
        ({"ranks": [1, 2, 3], "reason": "x" * (MAX_REASON + 1)}, InvalidInput, "4,001 characters; 1 to 4,000"),
        ({"chosen_id": "nothing"}, NotFound, "is no current ranking of task"),
        ({"chosen_id": "both", "ranks": [1, 2, 3]}, InvalidInput, "either one of the annotators' rankings or"),
    ):
        with pytest.raises(error, match=said):
            dispute.decide(**words)
    assert len(dispute.rows()) == 1


@pytest.mark.parametrize("role", [Role.ANNOTATOR, Role.REVIEWER])
def test_only_researchers_decide(store: Store, role: Role) -> None:
    dispute = Dispute(store)
    with pytest.raises(NotAllowed, match="this needs the role researcher"):
        dispute.decide(person=make.make_person(store, role))
    assert dispute.rows() == []


def test_a_task_of_another_project_is_not_found(store: Store) -> None:
    dispute = Dispute(store)
    with pytest.raises(NotFound, match="in this project"):
        open_case(store, make.make_project(store).id, dispute.task.id)


def test_sent_twice_it_is_stored_once_even_if_an_answer_came_between(store: Store) -> None:
    dispute = Dispute(store)
    seen = open_case(store, dispute.project.id, dispute.task.id).seen
    words: dict[str, Any] = {"submission_key": "same", "seen": seen, "supersedes_id": None}
    first = dispute.decide(**words)
    dispute.edit(dispute.bob, (2, 1, 3))
    assert dispute.decide(**words) == first
    assert len(dispute.rows()) == 1


def test_a_decision_on_answers_that_have_changed_is_refused(store: Store) -> None:
    dispute = Dispute(store)
    seen = open_case(store, dispute.project.id, dispute.task.id).seen
    dispute.edit(dispute.bob, (2, 1, 3))
    with pytest.raises(Conflict, match="an annotator has answered this task meanwhile"):
        dispute.decide(seen=seen)
    assert dispute.rows() == []


def test_of_two_who_decide_at_once_the_second_has_to_look_again(store: Store) -> None:
    dispute = Dispute(store)
    dispute.decide(supersedes_id=None)
    with pytest.raises(Conflict, match="somebody else has decided on this task meanwhile"):
        dispute.decide(supersedes_id=None, ranks=[1, 1, 1])
    changed = dispute.decide(ranks=[1, 1, 1], reason="all alike")
    first, second = dispute.rows()
    assert (first.superseded_at is None, second.superseded_at) == (False, None)
    assert (second.id, second.supersedes_id) == (changed.id, first.id)


def test_a_decided_task_comes_back_when_its_answers_change(store: Store) -> None:
    dispute = Dispute(store)
    dispute.decide()
    assert dispute.waiting() == []
    dispute.edit(dispute.bob, (2, 3, 1))
    (again,) = disputed_tasks(store, dispute.project.id)
    assert again.is_again
    dispute.edit(dispute.bob, (1, 2, 3))  # they agree now: nothing to decide
    assert dispute.waiting() == []


@pytest.mark.parametrize("merge", ["each", "soft"])
def test_snapshots_use_the_decision_and_say_so(store: Store, home: Home, merge: str) -> None:
    dispute = Dispute(store)
    dispute.ranked((1, 2), (1, 2))
    config = SnapshotConfig(eval_share=0, merge=merge)
    before = plan_snapshot(store, dispute.project.id, config).counts
    assert (before["adjudicated"], before["left_out"].get("overruled", 0)) == (0, 0)
    made = dispute.decide(ranks=[2, 1, 2], reason="b is best")
    counts = plan_snapshot(store, dispute.project.id, config).counts
    assert (counts["adjudicated"], counts["left_out"]["overruled"], counts["annotators"]) == (1, 2, 2)
    assert (counts["rankings_used"], counts["pairs"], counts["ties"]) == (3, 2 + (2 if merge == "each" else 1), 1)
    frozen = freeze_snapshot(store, OPERATOR, home, dispute.project.id, config)
    assert frozen.counts == counts
    folder = home.snapshot_folder(frozen.id)
    group = next(each for each in read_groups(folder) if each.adjudicated)
    assert (group.ranking_id, group.ranks, group.probabilities, group.comment) == (made.id, (2, 1, 2), (), "b is best")
    assert (group.weight, group.preferred[1 * 3 + 0], group.compared[1 * 3 + 0]) == (1.0, 1, 2)
    pairs = [each for each in read_parquet(folder / "pairs.parquet") if each["ranking_id"] == made.id]
    assert [(each["chosen"], each["rejected"], each["n_agree"], each["n_annotators"]) for each in pairs] == [
        ("b", "a", 1, 2), ("b", "c", 1, 2),
    ]  # fmt: skip
    others = [each["left_out"] for each in read_parquet(folder / OTHERS)]
    assert others.count("overruled") == 2
    export_snapshot(home, frozen, "kwise", home.exports / "out")
    rows = list(read_parquet(home.exports / "out" / "train.parquet"))
    assert [row["comment"] for row in rows if row["adjudicated"]] == ["b is best"]
    export_snapshot(home, frozen, "answers", home.exports / "answers")
    lines = [json.loads(line) for line in (home.exports / "answers" / "train.jsonl").read_text().splitlines()]
    with store.read() as tx:
        stored = sorted(each.id for each, _ in current_rankings(tx, dispute.project.id))
    assert sorted(line["ranking_id"] for line in lines) == stored
    assert dispute.boss.id.encode() not in b"".join(path.read_bytes() for path in folder.iterdir())


def test_a_decision_that_all_are_equal_leaves_the_task_out(store: Store) -> None:
    dispute = Dispute(store)
    dispute.ranked((1, 2), (1, 2))
    dispute.decide(ranks=[1, 1, 1], reason="can't be told apart")
    counts = plan_snapshot(store, dispute.project.id, SnapshotConfig()).counts
    assert (counts["adjudicated"], counts["groups"], counts["left_out"]["overruled"]) == (0, 2, 2)


def test_a_snapshot_that_was_frozen_before_stays_as_it_was(store: Store, home: Home) -> None:
    dispute = Dispute(store)
    frozen = freeze_snapshot(store, OPERATOR, home, dispute.project.id, SnapshotConfig(eval_share=0))
    before = [replace(each) for each in read_groups(home.snapshot_folder(frozen.id))]
    dispute.decide()
    assert list(read_groups(home.snapshot_folder(frozen.id))) == before


def test_annotators_never_learn_of_it(store: Store) -> None:
    dispute = Dispute(store)
    make.make_task(store, dispute.project)

    def seen_by(person: Person) -> str:
        return repr((next_work(store, person, dispute.project.id).n_done, history(store, person, dispute.project.id)))

    before = [seen_by(each) for each in (dispute.ann, dispute.bob)]
    made = dispute.decide(ranks=[1, 1, 1], reason="a word that nobody else says")
    assert [seen_by(each) for each in (dispute.ann, dispute.bob)] == before
    assert made.reason not in repr(before)
