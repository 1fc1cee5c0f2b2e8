"""Gold tasks: how they come, what they count for, what they say of an annotator. On both databases."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import factories as make
import pytest
import sqlalchemy as sa
from check_work import answer, get, make_gold_task, rolls, settle
from cli_runner import Cli

from app.widgets.labels.ranker import surface_data
from data.errors import Conflict, InvalidInput, NotAllowed, NotFound
from data.files.paths import Home
from data.labels.gold import gold_of_project, set_gold, withdraw_gold
from data.labels.projects import project_counts
from data.labels.rankings import current_rankings
from data.labels.roles import OPERATOR
from data.labels.slots import Waiting
from data.records import Purpose, RankingStatus, Role
from data.store import Store
from data.store.tables_checks import gold
from labeling.files.imports import import_rankings
from labeling.judgement.pair_agreement import PairAgreement
from labeling.review.agreement import project_agreement
from labeling.snapshot.freeze import SnapshotConfig, plan_snapshot
from labeling.work.checks import annotator_table
from labeling.work.gold import list_gold, make_gold, unmake_gold
from labeling.work.handout import hand_out
from labeling.work.session import history, next_work

ALWAYS, NEVER = 0.0, 1.0


def test_gold_comes_to_everybody_beyond_the_overlap_and_to_nobody_twice(store: Store) -> None:
    project = settle(store, make.make_project(store), gold_share=0.3)
    checked = [make_gold_task(store, project).id for _ in range(2)]
    ordinary = [make.make_task(store, project).id for _ in range(6)]
    for person in (make.make_person(store), make.make_person(store)):
        met = []
        for _ in range(3):
            held = get(store, person, project, dice=lambda: ALWAYS)
            met += [each.task.id for each in held]
            for each in held:
                answer(store, person, each)
        assert sorted(met) == sorted(checked + [each for each in ordinary if each in met])
        assert len(met) == 5
    with store.read() as tx:
        counts = project_counts(tx, project.id)
        answers = [each for each, _ in current_rankings(tx, project.id, with_gold=True)]
    assert (counts["slots"], counts["slots_done"], counts["tasks_gold"], counts["rankings"]) == (6, 6, 2, 10)
    assert Counter(each.purpose for each in answers) == {Purpose.GOLD: 4, Purpose.ORDINARY: 6}
    assert not any(each.is_extra or each.is_late for each in answers)


def test_without_ordinary_work_no_gold_comes_however_often_the_page_looks(store: Store) -> None:
    project, person = settle(store, make.make_project(store), gold_share=0.3), make.make_person(store)
    make_gold_task(store, project)
    for _ in range(3):
        work = next_work(store, person, project.id, dice=lambda: ALWAYS)
        assert (work.assignments, work.waiting) == ([], Waiting(0, None))


def test_the_shares_are_shares_of_all_that_an_annotator_gets(sqlite_store: Store) -> None:
    project, person = make.make_project(sqlite_store), make.make_person(sqlite_store)
    project = settle(sqlite_store, project, gold_share=0.1)
    for _ in range(400):
        make.make_task(sqlite_store, project)
    for _ in range(100):
        make_gold_task(sqlite_store, project)
    with sqlite_store.begin() as tx:
        found = Counter(each.purpose for each in hand_out(tx, project, person.id, 400))
    share = found[Purpose.GOLD] / found.total()
    assert 0.04 < share < 0.17  # four standard deviations on either side


def test_the_browser_can_not_tell_gold_from_other_work(store: Store) -> None:
    project, person = settle(store, make.make_project(store), gold_share=0.3), make.make_person(store)
    make_gold_task(store, project)
    make.make_task(store, project)
    work = next_work(store, person, project.id, n=2, dice=lambda: ALWAYS)
    assert {each.purpose for each in work.assignments} == {Purpose.ORDINARY, Purpose.GOLD}
    shown = surface_data(person, work, [], with_drafts=True)
    assert "gold" not in json.dumps(shown)
    one, other = shown["tasks"]
    assert one.keys() == other.keys()
    assert {len(each["lease_token"]) for each in shown["tasks"]} == {22}
    for each in work.assignments:
        answer(store, person, each)
    again = next_work(store, person, project.id)
    assert (again.n_done, again.n_today) == (2, 2)
    assert history(store, person, project.id)[0] == 2


def test_ordinary_claims_pass_a_gold_task_by_though_it_has_free_slots(store: Store) -> None:
    project, person = make.make_project(store, overlap=2), make.make_person(store)
    checked = make_gold_task(store, project, slots=2)
    assert get(store, person, project) == []
    with store.begin() as tx:
        withdraw_gold(tx, checked.id)
    assert [each.task.id for each in get(store, person, project)] == [checked.id]


def test_several_pages_of_one_person_get_the_same_gold(store: Store) -> None:
    project, person = settle(store, make.make_project(store), gold_share=0.3), make.make_person(store)
    for _ in range(3):
        make_gold_task(store, project)
        make.make_task(store, project)
    barrier, found = threading.Barrier(4), []

    def look() -> None:
        barrier.wait()
        found.append([each.slot_id for each in get(store, person, project, n=4, dice=lambda: ALWAYS)])

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found[0]) == 4
    assert found == [found[0]] * 4


def test_an_expired_lease_on_gold_stays_the_annotator_s_own(store: Store, clock: Any) -> None:
    project = settle(store, make.make_project(store), gold_share=0.3)
    ann, bob = make.make_person(store), make.make_person(store)
    make_gold_task(store, project)
    make.make_task(store, project)
    first = get(store, ann, project, dice=lambda: ALWAYS)
    clock.advance(3600)
    assert [each.purpose for each in get(store, bob, project, dice=lambda: NEVER)] == [Purpose.ORDINARY]
    answer(store, ann, next(each for each in first if each.purpose is Purpose.GOLD))
    with store.read() as tx:
        [found] = [each for each, _ in current_rankings(tx, project.id, with_gold=True)]
    assert (found.purpose, found.is_late, found.is_extra) == (Purpose.GOLD, True, False)


def test_skipping_gold_is_an_answer_that_sets_no_task_aside(store: Store) -> None:
    project = settle(store, make.make_project(store, max_skips=1), gold_share=0.3)
    checked = make_gold_task(store, project)
    for _ in range(8):
        make.make_task(store, project)
    for _ in range(2):
        person = make.make_person(store)
        held = get(store, person, project, dice=lambda: ALWAYS)
        own = next(each for each in held if each.task.id == checked.id)
        answer(store, person, own, skip_reason="no idea")
        assert checked.id not in [each.task.id for each in get(store, person, project, n=4, dice=lambda: ALWAYS)]
    with store.read() as tx:
        assert project_counts(tx, project.id)["tasks_set_aside"] == 0


def test_answers_to_gold_are_in_no_snapshot_and_no_agreement_unless_the_project_says_so(store: Store) -> None:
    project = settle(store, make.make_project(store, overlap=2), gold_share=0.3)
    make_gold_task(store, project)
    for _ in range(2):
        make.make_task(store, project)
    for person in (make.make_person(store), make.make_person(store)):
        for each in get(store, person, project, n=3, dice=rolls(ALWAYS, NEVER, NEVER, NEVER)):
            answer(store, person, each)
    counts = plan_snapshot(store, project.id, SnapshotConfig()).counts
    assert (counts["rankings_used"], counts["rankings_gold"], counts["left_out"]["gold"]) == (4, 0, 2)
    assert project_agreement(store, project.id).n_tasks == 2
    settle(store, project, gold_in_snapshots=True)
    counts = plan_snapshot(store, project.id, SnapshotConfig()).counts
    assert (counts["rankings_used"], counts["rankings_gold"], counts["left_out"]["gold"]) == (6, 2, 0)


def test_pair_agreement_with_gold_is_of_everybody_but_the_author(store: Store) -> None:
    project = settle(store, make.make_project(store, overlap=2), gold_share=0.3)
    author = make.make_person(store, Role.RESEARCHER, "Author")
    good, poor = make.make_person(store, name="Good"), make.make_person(store, name="Poor")
    task = make.make_task(store, project)
    make.make_ranking(store, task, author, [1, 2, 3])
    make.make_ranking(store, task, good, [1, 2, 3])  # before the task was gold
    assert make_gold(store, author, task.id)
    assert not make_gold(store, author, task.id)
    make.make_task(store, project)
    for each in get(store, poor, project, dice=lambda: ALWAYS):
        answer(store, poor, each, (3, 1, 2))  # of AB, AC, BC only BC is as expected
    found = {row.name: row.gold for row in annotator_table(store, project.id)}
    assert found == {
        "Author": PairAgreement(None, 0, 0),
        "Good": PairAgreement(1.0, 3, 1),
        "Poor": PairAgreement(pytest.approx(1 / 3), 3, 1),
    }


def test_only_a_ranking_with_an_order_becomes_gold_and_only_by_a_researcher(store: Store) -> None:
    project = make.make_project(store)
    author, ann = make.make_person(store, Role.RESEARCHER), make.make_person(store)
    task, tied, skipped = (make.make_task(store, project) for _ in range(3))
    make.make_ranking(store, tied, author, [1, 1, 1])
    make.make_ranking(store, skipped, author, status=RankingStatus.SKIPPED)
    with pytest.raises(NotFound, match="you have no answer"):
        make_gold(store, author, task.id)
    with pytest.raises(InvalidInput, match="checks nobody"):
        make_gold(store, author, tied.id)
    with pytest.raises(InvalidInput, match="only a ranking can be gold"):
        make_gold(store, author, skipped.id)
    with pytest.raises(NotAllowed):
        make_gold(store, ann, task.id)
    with pytest.raises(NotAllowed):
        unmake_gold(store, ann, task.id)
    with pytest.raises(NotFound, match="is not gold"):
        unmake_gold(store, author, task.id)


def test_what_was_expected_before_stays_recorded_and_one_at_a_time_counts(store: Store) -> None:
    project = make.make_project(store)
    task = make_gold_task(store, project, (1, 2, 3))
    with store.begin() as tx:
        assert not set_gold(tx, task.id, (1, 2, 3))
        assert set_gold(tx, task.id, (3, 2, 1))
    with store.read() as tx:
        assert gold_of_project(tx, project.id)[task.id].ranks == (3, 2, 1)
        assert tx.scalar(sa.select(sa.func.count()).select_from(gold)) == 2
    with pytest.raises(Conflict), store.begin() as tx:
        tx.execute(sa.update(gold).values(withdrawn_at=None))


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_a_row_marked_as_gold_is_expected_and_nobody_s_answer(store: Store, tmp_path: Path) -> None:
    project = make.make_project(store)
    row = {"prompt": "p", "responses": ["x", "y", "x"], "ranks": [1, 2, 1]}
    file = write(tmp_path / "r.jsonl", row | {"gold": True}, row | {"prompt": "q", "gold": False, "annotator": "a"},
                 row | {"prompt": "w", "gold": "perhaps"}, {"prompt": "v", "responses": ["x", "y"], "gold": True,
                 "status": "skipped"}, row | {"prompt": "u", "ranks": [1, 1, 1], "gold": "true"})  # fmt: skip
    report = import_rankings(store, OPERATOR, project.id, file)
    assert {name: n for name, n in report.counts.items() if n} == {"gold": 1, "rankings": 1, "doubles": 2}
    assert [problem.line for problem in report.problems] == [3, 4, 5]
    assert [(each.ranks, each.author) for each in list_gold(store, project.id)] == [((1, 2), "")]
    with store.read() as tx:
        assert len(list(current_rankings(tx, project.id, with_gold=True))) == 1
    assert import_rankings(store, OPERATOR, project.id, file).counts["known"] == 2


def test_the_words_gold_and_annotators(sqlite_store: Store, home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    cli, project = Cli(home.root, capsys), make.make_project(sqlite_store, "Trial", overlap=2)
    author, ann = make.make_person(sqlite_store, name="Author"), make.make_person(sqlite_store, name="Ann")
    tasks = [make.make_task(sqlite_store, project) for _ in range(3)]
    assert "no gold task yet" in cli("gold", "list", "Trial").out
    assert "has ranked no task" in cli.refuse("gold", "add", "Trial", "--from", "Author")
    for task, ranks in zip(tasks, ([1, 2, 3], [1, 1, 1], [2, 1, 3]), strict=True):
        make.make_ranking(sqlite_store, task, author, ranks)
        make.make_ranking(sqlite_store, task, ann, [1, 2, 3])
    made = cli.make("gold", "add", "Trial", "--from", "Author")
    assert (made["tasks"], made["new"]) == ([tasks[0].id, tasks[2].id], 2)
    assert [each["author"] for each in cli.make("gold", "list", "Trial")] == ["Author", "Author"]
    rows = {row["name"]: row for row in cli.make("annotators", "Trial")}
    # Wilson's interval of 5/6 of 2: 0.6141 -+ 0.3733.
    reach = {"low": pytest.approx(0.2408, abs=1e-4), "high": pytest.approx(0.9875, abs=1e-4)}
    assert rows["Ann"]["gold"] == {"value": pytest.approx(5 / 6), "n": 6, "n_items": 2} | reach
    assert "0.83 (0.24-0.99, 6 pairs of 2)" in cli("annotators", "Trial").out
    cli.make("gold", "remove", tasks[2].id)
    assert "is not gold" in cli.refuse("gold", "remove", tasks[2].id)
    assert len(cli.make("gold", "list", "Trial")) == 1
