"""Snapshots: the dry run with every count, freezing once, the list, exports."""

from __future__ import annotations

import json
from typing import Any

from factories import make_person, make_project, make_ranked_project, make_ranking, make_snapshot, make_task
from hostile import HOSTILE, markdown_of

from app.screens.snapshots import left_out_words
from data.files.paths import Home
from data.files.snapshots import list_snapshots
from data.records import Detail, RankingStatus, Role
from data.store import Store


def test_an_annotator_is_refused(sqlite_store: Store, run_lines: Any) -> None:
    app = run_lines(make_person(sqlite_store), "from app.screens.snapshots import render\nrender()")
    assert "needs the role researcher" in app.exception[0].message


def test_a_project_without_rankings_leads_to_ranking(sqlite_store: Store, open_app: Any) -> None:
    make_project(sqlite_store)
    app = open_app(make_person(sqlite_store, Role.RESEARCHER), "snapshots")
    assert not app.exception
    assert app.get_by_key("snapshots.to_rank").label == "Rank responses"
    assert not app.metric


def test_the_dry_run_counts_what_is_kept_and_what_is_left_out(sqlite_store: Store, open_app: Any) -> None:
    project = make_ranked_project(sqlite_store, n_prompts=9, k=3)
    ann = make_person(sqlite_store)
    make_ranking(sqlite_store, make_task(sqlite_store, project), ann, None)
    make_ranking(sqlite_store, make_task(sqlite_store, project), ann, (1, 1, 1))
    make_ranking(sqlite_store, make_task(sqlite_store, project), ann, (1, 2, 2))
    app = open_app(make_person(sqlite_store, Role.RESEARCHER), "snapshots")
    assert not app.exception
    counts = {metric.label: metric.value for metric in app.metric}
    assert (counts["Rankings used"], counts["Pairs"], counts["Ties"], counts["Annotators"]) == ("10", "29", "1", "2")
    assert app.warning[0].value == (
        "Rankings left out: 1 skipped by the annotator; 1 with all responses tied, so without a pair."
    )
    with sqlite_store.read() as tx:
        assert not list_snapshots(tx)


def test_unacceptable_answers_and_unordered_rests_have_their_own_words(sqlite_store: Store, open_app: Any) -> None:
    project, ann = make_ranked_project(sqlite_store, n_prompts=2, k=3), make_person(sqlite_store)
    make_ranking(sqlite_store, make_task(sqlite_store, project), ann, (1, 2, 2), detail=Detail(unplaced=(1, 2)))
    make_ranking(sqlite_store, make_task(sqlite_store, project), ann, status=RankingStatus.UNACCEPTABLE)
    app = open_app(make_person(sqlite_store, Role.RESEARCHER), "snapshots")
    assert {metric.label: metric.value for metric in app.metric}["Ties"] == "0"
    assert app.warning[0].value == "Rankings left out: 1 in which no response is acceptable."
    words = "3 rankings of 3 responses; 1 pair within a rest that was left in no order, so not compared"
    assert words in [each.value for each in app.caption]


def test_a_click_freezes_and_a_second_one_does_not(sqlite_store: Store, home: Home, open_app: Any) -> None:
    project = make_ranked_project(sqlite_store)
    app = open_app(make_person(sqlite_store, Role.RESEARCHER), "snapshots")
    nonce = app.session_state["snapshots.nonce"]
    app.get_by_key(f"snapshots.config.{project.id}.eval_share").set_value(0.5).run()
    _freeze(app)
    assert not app.exception
    app.session_state["snapshots.nonce"] = nonce
    app.run()
    _freeze(app)
    with sqlite_store.read() as tx:
        (made,) = list_snapshots(tx, project.id)
    assert made.config["eval_share"] == 0.5
    assert 1 <= made.counts["prompts_eval"] <= 5  # of six, about half
    assert (home.snapshot_folder(made.id) / "pairs.parquet").is_file()
    assert app.session_state["snapshots.nonce"] != nonce
    assert list(app.dataframe[0].value["hash"]) == [made.content_hash[:12]]


def test_an_edit_since_the_last_count_is_seen(sqlite_store: Store, open_app: Any) -> None:
    project = make_ranked_project(sqlite_store, n_prompts=4)
    app = open_app(make_person(sqlite_store, Role.RESEARCHER), "snapshots")
    assert app.metric[0].value == "4"
    make_ranking(sqlite_store, make_task(sqlite_store, project), make_person(sqlite_store), (1, 2, 3))
    app.run()
    assert app.metric[0].value == "5"


def test_examples_are_shown_as_they_are(sqlite_store: Store, open_app: Any) -> None:
    project = make_project(sqlite_store)
    task = make_task(sqlite_store, project, *HOSTILE[1:], prompt=HOSTILE[0])
    make_ranking(sqlite_store, task, make_person(sqlite_store), (1, 2, 3))
    app = open_app(make_person(sqlite_store, Role.RESEARCHER), "snapshots")
    assert not app.exception
    assert {text.value for text in app.text} >= {HOSTILE[0], HOSTILE[1], HOSTILE[2]}
    assert not any(text in markdown_of(app) for text in HOSTILE)


def test_an_export_is_written_and_can_be_fetched(sqlite_store: Store, home: Home, open_app: Any) -> None:
    snapshot = make_snapshot(sqlite_store, home)
    app = open_app(make_person(sqlite_store, Role.RESEARCHER), "snapshots")
    app.get_by_key("snapshots.format").set_value("kwise").run()
    exports = [button for button in app.button if button.key and button.key.startswith("snapshots.export.")]
    exports[0].click().run()
    assert not app.exception
    (folder,) = home.exports.iterdir()
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["format"], manifest["snapshot"]["id"]) == ("kwise", snapshot.id)
    links = [str(part.proto) for part in app.get("link_button")]
    assert any(f"/download/export/{folder.name}" in link for link in links)
    app.run()
    assert len(list(home.exports.iterdir())) == 1


def test_reasons_are_named_in_one_order() -> None:
    counts = {"left_out": {"replaced_by_an_edit": 2, "skipped": 1, "all_tied": 0, "new_reason": 3}}
    assert left_out_words(counts) == (
        "Rankings left out: 1 skipped by the annotator; 2 replaced by a later edit; 3 new reason."
    )
    assert not left_out_words({"left_out": {"skipped": 0}})


def _freeze(app: Any) -> None:
    next(button for button in app.button if button.key and button.key.startswith("snapshots.freeze.")).click().run()
