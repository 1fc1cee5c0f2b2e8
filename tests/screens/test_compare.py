"""Compare: queueing a comparison, and its texts side by side with their scores."""

from __future__ import annotations

from functools import partial
from typing import Any

from factories import make_finished_run, make_person, make_project, make_ranking, make_snapshot
from hostile import HOSTILE, markdown_of
from run_makers import ended, report, running

from app.actions.context import PROJECT_KEY
from app.screens.compare import better_side, held_out_words, pair_up
from app.words.values import run_name
from data.files.paths import Home
from data.labels.projects import list_projects, project_counts
from data.labels.prompts import prompt_id_of
from data.labels.roles import OPERATOR
from data.labels.tasks import add_task, get_tasks, list_task_ids
from data.records import NewPrompt, NewResponse, Role, Run, RunKind
from data.runs.state import list_runs
from data.store import Store
from labeling.review.comparison import create_comparison


def test_an_annotator_is_refused(sqlite_store: Store, run_lines: Any) -> None:
    app = run_lines(make_person(sqlite_store), "from app.screens.compare import render\nrender()")
    assert "needs the role researcher" in app.exception[0].message


def test_a_comparison_is_queued_once(sqlite_store: Store, home: Home, open_app: Any) -> None:
    snapshot = make_snapshot(sqlite_store, home)
    reward = ended(sqlite_store, RunKind.REWARD, snapshot=snapshot)
    policy = ended(sqlite_store, RunKind.PPO, snapshot=snapshot, reward_run=reward, model="acme/sft")
    app = open_app(make_person(sqlite_store, Role.RESEARCHER), "compare")
    assert not app.exception
    assert app.get_by_key("compare.model_a").value == ""
    assert app.get_by_key("compare.model_a").options[0] == "what B started from: acme/sft"
    assert app.get_by_key("compare.model_b").value == f"run:{policy.id}"
    assert app.get_by_key("compare.reward").value == reward.id
    nonce = app.session_state["compare.nonce"]
    app.get_by_key("compare.prompt").set_value("Name a river.")
    _start(app)
    assert not app.exception
    app.session_state["compare.nonce"] = nonce
    app.run()
    _start(app)
    with sqlite_store.read() as tx:
        (run,) = list_runs(tx, kinds=(RunKind.COMPARE,))
    assert run.reward_run_id == reward.id
    assert run.project_id == snapshot.project_id
    assert (run.config["model_a"], run.config["model_b"]) == ("acme/sft", f"run:{policy.id}")
    assert run.config["prompt"] == "Name a river."
    assert app.get_by_key("compare.run").value == run.id


def test_model_a_follows_what_model_b_started_from(sqlite_store: Store, home: Home, open_app: Any) -> None:
    snapshot = make_snapshot(sqlite_store, home)
    sft = ended(sqlite_store, RunKind.SFT, snapshot=snapshot, model="acme/base")
    reward = ended(sqlite_store, RunKind.REWARD, snapshot=snapshot)
    policy = ended(sqlite_store, RunKind.RLOO, snapshot=snapshot, reward_run=reward, model=f"run:{sft.id}")
    app = open_app(make_person(sqlite_store, Role.RESEARCHER), "compare")
    model_a, model_b = (partial(app.get_by_key, f"compare.model_{side}") for side in "ab")
    assert (model_b().value, model_a().value) == (f"run:{policy.id}", "")
    assert model_a().options[0] == f"what B started from: {run_name(sft)}"
    model_b().set_value(f"run:{sft.id}").run()
    assert (model_a().value, model_a().options[0]) == ("", "what B started from: acme/base")
    model_b().set_value("demo").run()
    assert not app.exception and model_a().value is None
    assert any("What B started from is not known here" in each.value for each in app.caption)
    _start(app)
    assert "model_a is empty" in app.error[0].value.replace("\\", "")
    model_a().set_value("test/model").run()
    model_b().set_value(f"run:{policy.id}").run()
    assert model_a().value == "test/model", "what was chosen stays"


def test_a_model_that_is_not_there_is_refused_and_scores_may_be_left_out(
    sqlite_store: Store, home: Home, open_app: Any
) -> None:
    project = make_project(sqlite_store)
    here, gone = str(home.root / "mine"), str(home.root / "gone")
    with sqlite_store.begin() as tx:
        prompt_id = prompt_id_of(tx, project.id, NewPrompt(({"role": "user", "content": "Hi"},)))
        add_task(tx, project.id, prompt_id, [NewResponse("a", here), NewResponse("b", gone)], slots=1)
    app = open_app(make_person(sqlite_store, Role.RESEARCHER), "compare")
    app.get_by_key("compare.model_a").set_value("demo")
    app.get_by_key("compare.model_b").set_value(gone)
    _start(app)
    assert "there is no such folder" in app.error[0].value.replace("\\", "")
    (home.root / "mine").mkdir()
    app.get_by_key("compare.model_b").set_value(here)
    _start(app)
    assert not app.exception
    with sqlite_store.read() as tx:
        (run,) = list_runs(tx)
    assert (run.config["model_b"], run.reward_run_id) == (here, None)


def test_texts_stand_side_by_side_with_their_scores(sqlite_store: Store, open_app: Any) -> None:
    run = running(sqlite_store, RunKind.COMPARE, make_project(sqlite_store), model_b="b/b")
    samples = [
        {"prompt": HOSTILE[0], "side": "a", "response": HOSTILE[1], "score": 0.5, "n_tokens": 3, "ended": True},
        {"prompt": HOSTILE[0], "side": "b", "response": HOSTILE[2], "score": 1.5, "n_tokens": 4, "ended": False},
        {"prompt": [{"role": "user", "content": "two"}], "side": "a", "response": "only A so far"},
    ]
    report(sqlite_store, run, 1, samples=samples)
    app = open_app(make_person(sqlite_store, Role.RESEARCHER), "compare")
    assert not app.exception
    assert {text.value for text in app.text} >= {*HOSTILE[:3], "two", "only A so far"}
    assert not any(text in markdown_of(app) for text in HOSTILE)
    assert {metric.label: metric.value for metric in app.metric} == {
        "Mean score of A": "0.5", "Mean score of B": "1.5", "A scores higher": "0 of 1", "B scores higher": "1 of 1",
    }  # fmt: skip
    captions = [caption.value for caption in app.caption]
    assert "4 tokens, cut at the limit" in captions
    assert "Not sampled yet." in captions


def test_samples_pair_by_prompt_and_the_higher_score_is_better() -> None:
    pairs = pair_up(
        [
            {"prompt": "p", "side": "B", "response": "1", "score": 1},
            {"prompt": "q", "side": "a", "response": "2"},
            {"prompt": "p", "side": "a", "response": "3", "score": 0.5},
            {"prompt": "p", "side": "c", "response": "no such side"},
        ]
    )
    assert [prompt for prompt, _ in pairs] == ["p", "q"]
    assert better_side(pairs[0][1]) == "b"
    assert better_side(pairs[1][1]) is None
    assert better_side({"a": {"score": 1.0}, "b": {"score": 1.0}}) is None


def test_a_result_says_whether_its_prompts_are_held_out() -> None:
    rows = [{"prompt": f"p{n}", "side": side, "trained_on": n == 2} for n in range(4) for side in "ab"]
    prompts = [f"p{n}" for n in range(4)]
    assert ":material/warning: 1 of 4 prompts were trained on" in held_out_words({}, rows, prompts)
    assert held_out_words({}, rows[:4], prompts[:2]).startswith("2 held-out prompts: as far as is known here")
    unsure = held_out_words({"held_out_not_known": "a file is gone"}, rows, prompts)
    assert "not known" in unsure and "a file is gone" in unsure
    assert "older release" in held_out_words({}, [{"prompt": "p0", "side": "a"}], ["p0"])


def _start(app: Any) -> None:
    next(button for button in app.button if button.key and button.key.startswith("compare.start.")).click().run()


def _compared(store: Store) -> Run:
    rows = [
        {"messages": [{"role": "user", "content": f"prompt {n}"}], "prompt": f"prompt {n}", "side": side,
         "model": model, "response": "the same" if n == 3 else f"{model} {n}"}
        for side, model in (("a", "sft-model"), ("b", "ppo")) for n in range(4)
    ]  # fmt: skip
    return make_finished_run(store, RunKind.COMPARE, rows, make_project(store))


def test_a_comparison_becomes_a_project_to_rank(sqlite_store: Store, run_lines: Any) -> None:
    run = _compared(sqlite_store)
    lines = f"from app.widgets.labels.win_rates import blind_form\nblind_form({run.id!r})"
    app = run_lines(make_person(sqlite_store, Role.RESEARCHER), lines)
    app.get_by_key("win_rates.name").set_value("Blind")
    _button(app, "win_rates.create.").click().run()
    with sqlite_store.read() as tx:
        project = next(each for each in list_projects(tx) if each.name == "Blind")
        counts = project_counts(tx, project.id)
    assert (counts["tasks"], counts["prompts"]) == (3, 4)
    assert app.session_state[PROJECT_KEY] == project.id


def test_the_win_rates_of_a_project_are_shown(sqlite_store: Store, home: Home, open_app: Any) -> None:
    made = create_comparison(sqlite_store, OPERATOR, home, [_compared(sqlite_store).id], "Blind")
    researcher = make_person(sqlite_store, Role.RESEARCHER)
    with sqlite_store.read() as tx:
        tasks = get_tasks(tx, list_task_ids(tx, made.project.id))
    app = open_app(researcher)
    app.session_state[PROJECT_KEY] = made.project.id
    app.switch_page("screens/compare.py").run()
    assert any("No ranking has responses of two models yet." in each.value for each in app.caption)
    for task, ranks in zip(tasks, ([2, 1], [2, 1], [1, 1]), strict=True):
        make_ranking(sqlite_store, task, researcher, ranks)
    app.run()
    assert not app.exception
    row = app.dataframe[0].value.iloc[0]
    assert (row["model"], row["against"], row["prompts"]) == ("ppo", "sft-model", 3)
    assert (row["wins"], row["ties"], row["rate"]) == (2 / 3, 1 / 3, 2 / 3 + 1 / 6)
    assert any("1 prompt to which all models said the same not in it" in each.value for each in app.caption)


def _button(app: Any, key: str) -> Any:
    return next(button for button in app.button if button.key and button.key.startswith(key))
