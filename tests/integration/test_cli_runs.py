"""Runs on the command line: `sample`, `train`, `score`, `runs`. No model is needed: who does a run here is the test."""

from __future__ import annotations

import contextlib
import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import factories
import pytest
from cli_runner import Cli, start
from run_makers import watched
from tiny import save_tiny_model

from app.commands.base import waiting
from data.fields import describe
from data.files.paths import Home
from data.labels.roles import OPERATOR
from data.records import FailureKind, Run, RunKind, RunStatus, Snapshot
from data.runs.metrics import report_step
from data.runs.state import claim_run, finish_run, get_run, list_runs
from data.store import Store
from training.launch.kinds import CONFIGS
from training.launch.queue import queue_run


@pytest.fixture
def cli(home: Home, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(home.root, capsys)


@pytest.fixture
def snapshot(sqlite_store: Store, home: Home) -> Snapshot:
    return factories.make_snapshot(sqlite_store, home)


@pytest.fixture
def reward_run(sqlite_store: Store, snapshot: Snapshot) -> Run:
    """A reward run that has succeeded, without a model."""
    config = CONFIGS[RunKind.REWARD]()
    queued = queue_run(sqlite_store, OPERATOR, RunKind.REWARD, config, snapshot_id=snapshot.id)
    with sqlite_store.begin() as tx:
        claimed = claim_run(tx, "test")
        assert claimed is not None
        finish_run(tx, queued.id, claimed.epoch, RunStatus.SUCCEEDED, result={"eval/accuracy": 0.75})
        return get_run(tx, queued.id)


@contextlib.contextmanager
def worker(store: Store, do: Callable[[Run], None]) -> Iterator[None]:
    """A worker in a thread: claims the next run and calls `do` with it."""
    is_over = threading.Event()

    def work() -> None:
        while not is_over.wait(0.05):
            with store.begin() as tx:
                claimed = claim_run(tx, "test")
            if claimed is not None:
                do(claimed)
                return

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def end(store: Store, run: Run, status: RunStatus, **facts: Any) -> None:
    with store.begin() as tx:
        finish_run(tx, run.id, run.epoch, status, **facts)


def test_sampling_is_queued_with_the_project_s_k(cli: Cli, sqlite_store: Store) -> None:
    project = factories.make_project(sqlite_store, "Trial", k=5)
    made = cli.make("sample", "--project", "Trial", "--set", "temperature=0.7", "limit=20", "--set", "split=train")
    assert (made["kind"], made["status"], made["project_id"]) == ("sample", "queued", project.id)
    asked = made["config"]
    assert (asked["model"], asked["k"], asked["sampling.temperature"], asked["limit"]) == ("demo", 5, 0.7, 20)
    assert asked["split"] == "train"


def test_features_are_queued_for_a_project(cli: Cli, sqlite_store: Store) -> None:
    project = factories.make_project(sqlite_store, "Trial")
    refused = cli.refuse("features", "--project", "Trial")
    assert "no response of the project says which model wrote it: name one, such as model=demo" in refused
    made = cli.make("features", "--project", "Trial", "--set", "max_length=256", "--set", "model=demo")
    assert (made["kind"], made["status"], made["project_id"]) == ("features", "queued", project.id)
    assert (made["config"]["model"], made["config"]["max_length"]) == ("demo", 256)


def test_models_are_written_so_that_a_worker_anywhere_finds_them(
    cli: Cli, sqlite_store: Store, snapshot: Snapshot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models" / "mine").mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(tmp_path)
    factories.make_project(sqlite_store, "Trial")
    for written in ("models/mine", "./models/mine"):
        made = cli.make("sample", "--project", "Trial", "--model", written)
        assert made["config"]["model"] == str(tmp_path / "models" / "mine")
        cli.make("runs", "cancel", made["id"])
    tuned = cli.make("train", "sft", "--snapshot", snapshot.id, "--set", "model=org/name")
    assert tuned["config"]["model"] == "org/name"
    with sqlite_store.begin() as tx:
        claimed = claim_run(tx, "test")
    assert claimed is not None
    end(sqlite_store, claimed, RunStatus.SUCCEEDED)
    made = cli.make("sample", "--project", "Trial", "--model", f"run:{tuned['id'][-6:]}")
    assert made["config"]["model"] == f"run:{tuned['id']}"


def test_a_dry_run_prints_what_the_run_would_lose_and_stops(
    cli: Cli, sqlite_store: Store, snapshot: Snapshot, tmp_path: Path
) -> None:
    """Six prompts of three responses `response 0 to question 0`, which are 24 bytes long."""
    model = save_tiny_model(tmp_path / "tiny")
    words = ("train", "reward", "--snapshot", snapshot.id, "--dry-run", "--set", f"model={model}", "max_length=30")
    found = cli.make(*words)
    assert found["counts"]["prompts_cut"] == found["counts"]["train"] + found["counts"]["held_out"] == 6
    assert found["counts"]["responses_cut"] == 0
    assert (found["dry_run"], found["max_length"], found["config"]["model"]) == (True, 30, str(model))
    said = cli(*words)
    assert said.status == 0
    assert "  prompts cut: 6" in said.out.splitlines()
    assert "training side has no ranking with a pair (counted:" in cli.refuse(*words[:-1], "max_length=10")
    with sqlite_store.read() as tx:
        assert not list_runs(tx)


@pytest.mark.parametrize("kind", ["reward", "sft", "dpo"])
def test_training_is_queued(cli: Cli, snapshot: Snapshot, kind: str) -> None:
    made = cli.make("train", kind, "--snapshot", snapshot.id, "--set", "learning_rate=3e-5", "adapter=full")
    assert (made["kind"], made["snapshot_id"], made["project_id"]) == (kind, snapshot.id, snapshot.project_id)
    assert (made["config"]["optimiser.learning_rate"], made["config"]["adapter"]) == (3e-5, "full")


def test_training_starts_from_a_preset_and_the_words_go_over_it(cli: Cli, snapshot: Snapshot, reward_run: Run) -> None:
    words = ("train", "ppo", "--snapshot", snapshot.id, "--reward-run", reward_run.id, "--preset")
    made = cli.make(*words, "huang-2024", "--set", "kl.coef=0.1", "max_new_tokens=9")["config"]
    assert (made["kl.coef"], made["sampling.max_new_tokens"], made["sampling.temperature"]) == (0.1, 9, 0.7)
    assert "preset = 'huang': one of instructgpt" in cli.refuse(*words, "huang")


@pytest.mark.parametrize("kind", ["sft", "dpo"])
def test_a_reward_run_may_evaluate_what_learns_from_rankings(
    cli: Cli, snapshot: Snapshot, reward_run: Run, kind: str
) -> None:
    words = ("train", kind, "--snapshot", snapshot.id)
    made = cli.make(*words, "--reward-run", reward_run.id[-6:], "--set", "eval_prompts=3")
    assert (made["reward_run_id"], made["config"]["evaluation.prompts"]) == (reward_run.id, 3)
    assert made["config"]["model"] == reward_run.config["model"], "it starts where PPO would"
    assert cli.make(*words)["reward_run_id"] is None
    assert "a finished reward run is needed" in cli.refuse(*words, "--reward-run", made["id"])


def test_the_best_policy_is_shown_and_sampled_from(cli: Cli, sqlite_store: Store, snapshot: Snapshot) -> None:
    run = watched(sqlite_store, snapshot, {0: 0.1, 2: 0.7, 4: 0.4}, model="demo")
    start = watched(sqlite_store, snapshot, {0: 0.5, 2: 0.3}, model="demo")
    shown = cli.make("runs", "show", run.id)["best_policy"]
    assert shown["model"] == f"run:{run.id}/best"
    assert (shown["iteration"], shown["figure"], shown["last_iteration"], shown["last_figure"]) == (2, 0.7, 4, 0.4)
    lines = [line.strip() for line in cli("runs", "show", run.id).out.splitlines()]
    assert shown["verdict"].startswith(
        "Best policy: iteration 2, by held_out/objective: 0.7. It is better than the start"
    )
    assert (shown["standing"]["prompts"], shown["standing"]["next_iteration"]) == (16, 4)
    assert [round(shown["standing"]["less_next"][name], 3) for name in ("value", "low", "high")] == [0.3, 0.209, 0.391]
    assert "best policy:" in lines and f"model: run:{run.id}/best" in lines
    words = ("sample", "--project", snapshot.project_id, "--model")
    assert cli.make(*words, f"run:{run.id[-6:]}/best")["config"]["model"] == f"run:{run.id}/best"
    assert "no evaluation had a higher held_out/objective than its start" in cli.refuse(*words, f"run:{start.id}/best")


def test_ppo_is_queued_with_its_own_prompts(
    cli: Cli, home: Home, snapshot: Snapshot, reward_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "one"}\n{"prompt": " "}\n{"question": "three"}\n')
    monkeypatch.chdir(tmp_path)
    words = ("train", "ppo", "--snapshot", snapshot.id, "--reward-run", reward_run.id[-6:])
    made = cli.make(*words, "--prompts", "prompts.jsonl", "--set", "kl_target=none")
    assert made["reward_run_id"] == reward_run.id
    assert made["input"] == {"rows": 2, "refused": 1, "problems": [{"line": 2, "message": "the prompt is empty"}]}
    handed = [json.loads(line) for line in Path(made["config"]["prompts_file"]).read_text().splitlines()]
    assert [row["messages"][0]["content"] for row in handed] == ["one", "three"]
    assert Path(made["config"]["prompts_file"]).parent == home.uploads
    (tmp_path / "prompts.jsonl").write_text("")
    assert "prompts.jsonl: the file is empty" in cli.refuse(*words, "--prompts", "prompts.jsonl")
    (tmp_path / "prompts.jsonl").write_text('{"prompt": ""}\n')
    assert "no row can be used; line 1: the prompt is empty" in cli.refuse(*words, "--prompts", "prompts.jsonl")
    assert len(list(home.uploads.iterdir())) == 1


def test_ppo_is_queued_with_texts_of_its_own(
    cli: Cli, home: Home, snapshot: Snapshot, reward_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "texts.csv").write_text("text,prompt,response\nonce,,\n,Q,A\n,,\n")
    monkeypatch.chdir(tmp_path)
    words = ("train", "ppo", "--snapshot", snapshot.id, "--reward-run", reward_run.id, "--ptx", "texts.csv")
    made = cli.make(*words, "--set", "ptx_coef=0.5")
    kept = Path(made["config"]["ptx_file"])
    assert kept.parent == home.uploads
    assert [json.loads(line) for line in kept.read_text().splitlines()] == [
        {"line": 2, "text": "once"},
        {"line": 3, "messages": [{"role": "user", "content": "Q"}], "response": "A"},
    ]
    empty = {"line": 4, "message": "the text or the response is empty"}
    assert made["ptx"] == {"rows": 2, "refused": 1, "problems": [empty]}
    (tmp_path / "texts.csv").write_text("text\nonce\n")
    assert "only with ptx_coef above 0" in cli.refuse(*words)
    (tmp_path / "texts.csv").write_text("text\n")
    assert "texts.csv: no row can be used" in cli.refuse(*words, "--set", "ptx_coef=0.5")
    assert len(list(home.uploads.iterdir())) == 1
    (tmp_path / "here.jsonl").write_text('{"text": "once"}\n')
    made = cli.make(*words[:-2], "--set", "ptx_coef=0.5", "ptx_file=here.jsonl")
    assert made["config"]["ptx_file"] == str(tmp_path / "here.jsonl")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["sample", "--project", "Trail"], "no project 'Trail'"),
        (["sample", "--project", "Trial", "--set", "k=1"], "k = 1: a ranking needs at least 2 responses"),
        (
            ["sample", "--project", "Trial", "--set", "temprature=1"],
            "no field 'temprature'; did you mean 'sampling.temperature'?",
        ),
        (["sample", "--project", "Trial", "--set", "temperature=hot"], "temperature = 'hot': a number is needed"),
        (["sample", "--project", "Trial", "--set", "top_p=1.5"], "sampling.top_p = 1.5: 0.01 to 1.0 is allowed"),
        (["sample", "--project", "Trial", "--set", "k"], "'k': write name=value"),
        (["sample", "--project", "Trial", "--set", "split=half"], "split = 'half': one of all, train, eval is needed"),
        (["sample", "--project", "Trial", "--model", "/nowhere"], "model = '/nowhere': there is no such folder"),
        (["train", "reward", "--snapshot", "nothing"], "no snapshot 'nothing'"),
        (["train", "reward"], "the following arguments are required: --snapshot"),
        (["train", "grpo", "--snapshot", "SNAPSHOT"], "invalid choice: 'grpo'"),
        (["train", "ppo", "--snapshot", "SNAPSHOT"], "the following arguments are required: --reward-run"),
        (["train", "ppo", "--snapshot", "SNAPSHOT", "--reward-run", "nothing"], "no run 'nothing'"),
        (["train", "reward", "--snapshot", "SNAPSHOT", "--reward-run", "x"], "unrecognized arguments: --reward-run x"),
        (["runs", "show", "nothing"], "no run 'nothing'; `rankloop runs list` shows them all"),
        (["runs", "cancel", "nothing"], "no run 'nothing'"),
        (["runs", "resume", "nothing"], "no run 'nothing'"),
        (["score", "nowhere.jsonl", "--reward-run", "x"], "nowhere.jsonl: there is no such file"),
    ],
)
def test_wrong_words_are_refused_and_nothing_is_queued(
    cli: Cli, sqlite_store: Store, snapshot: Snapshot, words: list[str], expected: str
) -> None:
    factories.make_project(sqlite_store, "Trial")
    assert expected in cli.refuse(*[snapshot.id if word == "SNAPSHOT" else word for word in words])
    assert cli.make("runs", "list") == []


@pytest.mark.parametrize("kind", [RunKind.SAMPLE, RunKind.REWARD, RunKind.PPO, RunKind.SFT, RunKind.DPO, RunKind.RLOO])
def test_help_lists_every_field_with_its_default(cli: Cli, capsys: pytest.CaptureFixture[str], kind: RunKind) -> None:
    for words in [["sample"]] if kind is RunKind.SAMPLE else [["train", kind.value], ["train"]]:
        with pytest.raises(SystemExit) as stopped:
            cli(*words, "--help")
        assert stopped.value.code == 0
        page = capsys.readouterr().out
        for info in describe(CONFIGS[kind]):
            lines = [each for each in page.splitlines() if each.strip().startswith(f"{info.name}=")]
            assert any(info.help in line and info.unit in line for line in lines)


def test_help_says_limits_and_choices(cli: Cli, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli("train", "ppo", "--help")
    page = capsys.readouterr().out
    assert "in the loss (one of reward, loss)" in page
    assert "kl.target=none" in page
    assert "(in nats per response, at least 1e-06, or none)" in page
    assert "discount (0 to 1)" in page


def test_runs_are_listed_and_shown(cli: Cli, sqlite_store: Store, reward_run: Run) -> None:
    queued = factories.make_run(sqlite_store, RunKind.SAMPLE)
    assert [run["id"] for run in cli.make("runs", "list")] == [queued.id, reward_run.id]
    shown = cli.make("runs", "show", reward_run.id)
    assert shown["status"] == "succeeded"
    assert shown["result"] == {"eval/accuracy": 0.75}
    assert [event["kind"] for event in shown["events"]] == ["queued", "started", "succeeded"]
    assert shown["folder"].endswith(reward_run.id)
    text = cli("runs", "show", reward_run.id).out
    assert f"snapshot: {reward_run.snapshot_id}" in text
    assert "eval/accuracy: 0.75" in text
    assert "learning_rate: none" in text
    assert "reward  succeeded  0" in cli("runs", "list").out


def test_a_run_shows_its_metrics_at_their_last_step(cli: Cli, sqlite_store: Store) -> None:
    queued = factories.make_run(sqlite_store)
    with sqlite_store.begin() as tx:
        claimed = claim_run(tx, "test")
        assert claimed is not None
        for step, loss in ((1, 0.7), (2, 0.5)):
            report_step(tx, queued.id, claimed.epoch, step, total_steps=10, metrics={"loss": loss}, samples=[])
    shown = cli.make("runs", "show", queued.id)
    assert (shown["step"], shown["total_steps"], shown["metrics"]) == (2, 10, {"loss": 0.5})
    assert "step 2 of 10" in cli("runs", "show", queued.id).out


def test_a_run_is_cancelled_and_resumed(cli: Cli, sqlite_store: Store) -> None:
    run = factories.make_run(sqlite_store)
    assert "is queued; only a failed or cancelled run can be resumed" in cli.refuse("runs", "resume", run.id)
    assert cli.make("runs", "cancel", run.id)["status"] == "cancelled"
    assert "there is nothing to cancel" in cli.refuse("runs", "cancel", run.id)
    assert cli.make("runs", "resume", run.id)["status"] == "queued"
    with sqlite_store.begin() as tx:
        claim_run(tx, "test")
    assert "stops at its next safe place" in cli("runs", "cancel", run.id).out


def test_waiting_for_a_run_that_succeeds(cli: Cli, sqlite_store: Store, snapshot: Snapshot) -> None:
    with worker(sqlite_store, lambda run: end(sqlite_store, run, RunStatus.SUCCEEDED, result={"loss": 0.3})):
        made = cli.make("train", "reward", "--snapshot", snapshot.id, "--wait")
    assert (made["status"], made["result"]) == ("succeeded", {"loss": 0.3})


def test_waiting_for_a_run_that_fails_gives_its_own_words_and_status_1(
    cli: Cli, sqlite_store: Store, snapshot: Snapshot
) -> None:
    facts = {"error_kind": FailureKind.DISK_FULL, "error_message": "the disk is full\nat /home"}
    with worker(sqlite_store, lambda run: end(sqlite_store, run, RunStatus.FAILED, **facts)):
        said = cli("train", "reward", "--snapshot", snapshot.id, "--wait", "--json")
    assert said.status == 1
    assert (said.document["status"], said.document["error_kind"]) == ("failed", "disk_full")
    assert f"rankloop: run {said.document['id']} (reward) failed: the disk is full at /home\n" in said.err


def test_a_resumed_run_can_be_waited_for(cli: Cli, sqlite_store: Store) -> None:
    run = factories.make_run(sqlite_store)
    cli.make("runs", "cancel", run.id)
    with worker(sqlite_store, lambda claimed: end(sqlite_store, claimed, RunStatus.SUCCEEDED)):
        assert cli.make("runs", "resume", run.id, "--wait")["status"] == "succeeded"


def test_scores_are_copied_to_where_they_are_wanted(
    cli: Cli, sqlite_store: Store, home: Home, reward_run: Run, tmp_path: Path
) -> None:
    source, out = tmp_path / "answers.jsonl", tmp_path / "new" / "scores.jsonl"
    source.write_text('{"prompt": "one", "responses": ["a"]}\n')

    def score(run: Run) -> None:
        (row,) = Path(run.config["input_file"]).read_text().splitlines()
        assert json.loads(row)["responses"] == ["a"]
        assert run.reward_run_id == reward_run.id
        assert run.config["centre_prompts"] is True
        folder = home.run_folder(run.id)
        folder.mkdir()
        (folder / "scores.jsonl").write_text('{"scores": [1.5]}\n')
        end(sqlite_store, run, RunStatus.SUCCEEDED, result={"rows": 1})

    with worker(sqlite_store, score):
        words = ("--reward-run", reward_run.id, "--out", out, "--set", "centre_prompts=true")
        made = cli.make("score", source, *words)
    assert made["file"] == str(out)
    assert json.loads(out.read_text()) == {"scores": [1.5]}
    assert [path.name for path in out.parent.iterdir()] == ["scores.jsonl"]
    message = cli.refuse("score", source, "--reward-run", reward_run.id, "--out", out)
    assert "it exists already; name a new file" in message


def test_scoring_needs_finished_reward_runs(cli: Cli, sqlite_store: Store, reward_run: Run, tmp_path: Path) -> None:
    source = tmp_path / "answers.jsonl"
    source.write_text('{"prompt": "one", "responses": ["a"]}\n')
    queued = factories.make_run(sqlite_store, RunKind.REWARD)
    assert "a finished reward run is needed" in cli.refuse("score", source, "--reward-run", queued.id)
    twice = ("--reward-run", reward_run.id, "--reward-run", reward_run.id[-6:])
    assert "a reward run is named twice" in cli.refuse("score", source, *twice)


def test_a_run_that_nobody_takes_gets_a_worker_of_its_own(
    cli: Cli, sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker and its child are real; the folder holds no model, so the run fails in its own words."""
    monkeypatch.setattr(waiting, "PATIENCE_S", 0.2)
    project = factories.make_project(sqlite_store, "Trial")
    factories.make_task(sqlite_store, project)
    (tmp_path / "no model").mkdir()
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "app").mkdir(parents=True)
    (elsewhere / "app" / "__init__.py").write_text("raise SystemExit('somebody else is started')")
    monkeypatch.chdir(elsewhere)
    words = ("--model", tmp_path / "no model", "--set", "only_new=false", "device=cpu")
    said = cli("sample", "--project", "Trial", *words, "--wait", "--json")
    assert said.status == 1
    assert f"no worker has taken run {said.document['id']}; starting one" in said.err
    assert said.document["status"] == "failed"
    assert str(tmp_path / "no model") in said.document["error_message"]


def test_no_worker_is_started_while_one_is_busy(
    cli: Cli, sqlite_store: Store, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "PATIENCE_S", 0.2)
    factories.make_run(sqlite_store, RunKind.SAMPLE)
    with sqlite_store.begin() as tx:
        busy = claim_run(tx, "another")
    assert busy is not None

    def wait_and_work(run: Run) -> None:
        time.sleep(1.5)
        end(sqlite_store, run, RunStatus.SUCCEEDED)

    timer = threading.Timer(1.5, lambda: end(sqlite_store, busy, RunStatus.SUCCEEDED))
    timer.start()
    with worker(sqlite_store, wait_and_work):
        said = cli("train", "reward", "--snapshot", snapshot.id, "--wait")
    timer.join()
    assert said.status == 0
    assert "starting one" not in said.err


def test_a_worker_that_does_not_start_is_noticed(
    cli: Cli, sqlite_store: Store, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "PATIENCE_S", 0.2)
    monkeypatch.setattr("sys.executable", "/bin/false")
    said = cli("train", "reward", "--snapshot", snapshot.id, "--wait", "--json")
    assert said.status == 1
    assert "ended with status 1 before it took the run; start one with `rankloop worker`" in said.err
    assert said.document["status"] == "queued"


def test_ctrl_c_leaves_the_run_and_says_how_to_look_at_it(home: Home, sqlite_store: Store, snapshot: Snapshot) -> None:
    with start(home.root, "train", "reward", "--snapshot", snapshot.id, "--wait") as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "is queued; a worker takes it" in line
        run_id = line.split()[1]
        with sqlite_store.begin() as tx:
            assert claim_run(tx, "test") is not None
        time.sleep(1.0)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert out == ""
    assert f"run {run_id} is running and goes on: `rankloop runs show {run_id}` shows it" in err
    assert f"`rankloop runs cancel {run_id}` stops it" in err
    assert "Traceback" not in err
    with sqlite_store.read() as tx:
        left = get_run(tx, run_id)
    assert (left.status, left.cancel_requested_at) == (RunStatus.RUNNING, None)
