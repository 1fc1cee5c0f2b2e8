"""Runs: the state machine against a model of it, who may write, and eight processes that claim. On both databases."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import factories as make
import pytest
import sqlalchemy as sa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)
from spawned import spawning

from data.errors import Conflict, Fenced, NotFound
from data.records import FailureKind, MetricPoint, Run, RunKind, RunStatus
from data.runs.metrics import metric_names, metrics_of, report_step, rewind, samples_of
from data.runs.state import (
    LEASE_S,
    add_event,
    checkpoints_of,
    claim_run,
    create_run,
    events_of,
    finish_run,
    forget_checkpoint,
    get_run,
    heartbeat,
    list_runs,
    owned_update,
    reap_runs,
    register_checkpoint,
    release_run,
    request_cancel,
    resume_run,
)
from data.store import Store

FINAL = (RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.CANCELLED)


def claimed(store: Store, **facts: Any) -> Run:
    """A run that a worker has just claimed."""
    make.make_run(store, **facts)
    with store.begin() as tx:
        run = claim_run(tx, "worker")
    assert run is not None
    return run


def look(store: Store, run: Run) -> Run:
    with store.read() as tx:
        return get_run(tx, run.id)


def kinds_of(store: Store, run: Run) -> list[str]:
    with store.read() as tx:
        return [event.kind for event in events_of(tx, run.id)]


# The state machine, rule by rule


def test_a_run_from_the_queue_to_its_end(store: Store, clock: Any) -> None:
    queued = make.make_run(store, RunKind.PPO)
    assert (queued.status, queued.epoch, queued.attempt, queued.started_at) == (RunStatus.QUEUED, 0, 0, None)
    clock.advance(5)
    with store.begin() as tx:
        run = claim_run(tx, "worker-1")
        assert claim_run(tx, "worker-2") is None
    assert run is not None
    assert (run.id, run.status, run.epoch, run.attempt) == (queued.id, RunStatus.RUNNING, 1, 1)
    assert (run.started_at, run.heartbeat_at, run.lease_until) == (clock.now, clock.now, clock.now + LEASE_S)
    clock.advance(5)
    with store.begin() as tx:
        assert heartbeat(tx, run.id, run.epoch) is False
        finish_run(tx, run.id, run.epoch, RunStatus.SUCCEEDED, result={"accuracy": 0.7})
    ended = look(store, run)
    assert (ended.status, ended.result, ended.ended_at, ended.lease_until) == (
        RunStatus.SUCCEEDED, {"accuracy": 0.7}, clock.now, None,
    )  # fmt: skip
    assert kinds_of(store, run) == ["queued", "started", "succeeded"]


def test_one_run_may_be_claimed_before_its_turn(store: Store) -> None:
    first, second = make.make_run(store), make.make_run(store)
    with store.begin() as tx:
        claimed = claim_run(tx, "launch", run_id=second.id)
        assert claimed is not None and claimed.id == second.id
        assert claim_run(tx, "launch", run_id=second.id) is None
    assert look(store, first).status is RunStatus.QUEUED


def test_runs_are_claimed_in_the_order_in_which_they_came_and_by_kind(store: Store, clock: Any) -> None:
    order = []
    for kind in (RunKind.PPO, RunKind.SAMPLE, RunKind.PPO):
        order.append(make.make_run(store, kind).id)
        clock.advance(1)
    with store.begin() as tx:
        claims = [claim_run(tx, "w", kinds=kinds) for kinds in ((RunKind.SAMPLE,), (), (RunKind.SAMPLE,), ())]
    assert [each.id if each else None for each in claims] == [order[1], order[0], None, order[2]]


def test_two_clicks_on_start_make_one_run(store: Store) -> None:
    with store.begin() as tx:
        one = create_run(tx, RunKind.REWARD, {"a": 1}, nonce="click")
    with store.begin() as tx:
        other = create_run(tx, RunKind.REWARD, {"a": 2}, nonce="click")
        assert len(list_runs(tx)) == 1
    assert (one.id, one.config) == (other.id, other.config)
    assert kinds_of(store, one) == ["queued"]


def test_a_run_of_something_that_does_not_exist_is_refused(store: Store) -> None:
    for wrong in ({"project_id": "x"}, {"snapshot_id": "x"}, {"reward_run_id": "x"}, {"created_by": "x"}):
        with pytest.raises(Conflict, match="does not exist"), store.begin() as tx:
            create_run(tx, RunKind.REWARD, {}, **wrong)
    with store.read() as tx:
        assert list_runs(tx) == []


def test_a_run_is_found_by_the_end_of_its_id_if_only_one_ends_so(store: Store) -> None:
    run = make.make_run(store)
    with store.read() as tx:
        assert get_run(tx, run.id[-6:]).id == run.id
        for wrong in ("", run.id[-3:], "%" * 6, "_" * 16, "nothing"):
            with pytest.raises(NotFound, match="rankloop runs list"):
                get_run(tx, wrong)


def test_a_queued_run_is_cancelled_at_once(store: Store) -> None:
    run = make.make_run(store)
    with store.begin() as tx:
        assert request_cancel(tx, run.id).status is RunStatus.CANCELLED
        assert claim_run(tx, "w") is None
    with pytest.raises(Conflict, match=r"has ended \(cancelled\); there is nothing to cancel"), store.begin() as tx:
        request_cancel(tx, run.id)


def test_a_running_run_hears_of_the_cancel_at_its_next_beat(store: Store) -> None:
    run = claimed(store)
    with store.begin() as tx:
        assert request_cancel(tx, run.id).status is RunStatus.RUNNING
        request_cancel(tx, run.id)  # a second click says nothing new
        assert heartbeat(tx, run.id, run.epoch) is True
        finish_run(tx, run.id, run.epoch, RunStatus.CANCELLED)
    assert kinds_of(store, run) == ["queued", "started", "cancel_requested", "cancelled"]


def test_only_a_run_that_failed_or_was_cancelled_can_be_resumed(store: Store) -> None:
    run = make.make_run(store)
    with pytest.raises(Conflict, match="is queued; only a failed or cancelled run"), store.begin() as tx:
        resume_run(tx, run.id)
    with store.begin() as tx:
        claim = claim_run(tx, "w")
        assert claim is not None
        finish_run(
            tx, run.id, claim.epoch, RunStatus.FAILED, error_kind=FailureKind.DISK_FULL, error_message="disk full"
        )
        assert get_run(tx, run.id).error_kind is FailureKind.DISK_FULL
        again = resume_run(tx, run.id)
        assert (again.status, again.error_kind, again.error_message, again.ended_at) == (RunStatus.QUEUED,) + (
            None,
        ) * 3
        second = claim_run(tx, "w")
        assert second is not None
    assert (second.attempt, second.epoch, second.started_at) == (2, 2, claim.started_at)
    assert kinds_of(store, run) == ["queued", "started", "failed", "resumed", "started"]


def test_a_lost_worker_s_run_fails_when_its_lease_runs_out_and_not_before(store: Store, clock: Any) -> None:
    run = claimed(store)
    clock.advance(LEASE_S)
    with store.begin() as tx:
        assert reap_runs(tx) == []
    clock.advance(0.001)
    with store.begin() as tx:
        assert reap_runs(tx) == [run.id]
        assert reap_runs(tx) == []
    lost = look(store, run)
    assert (lost.status, lost.error_kind, lost.lease_until) == (RunStatus.FAILED, FailureKind.WORKER_LOST, None)
    assert "resume the run" in str(lost.error_message)
    assert kinds_of(store, run)[-1] == "worker_lost"


def test_a_worker_that_dies_before_its_first_beat_is_noticed_too(store: Store, clock: Any) -> None:
    """The claim itself sets the lease: there is no run without one that nobody would look at."""
    run = claimed(store)
    assert run.heartbeat_at == clock.now
    clock.advance(LEASE_S + 1)
    with store.begin() as tx:
        assert reap_runs(tx) == [run.id]


def test_a_lost_run_that_was_being_cancelled_ends_as_cancelled(store: Store, clock: Any) -> None:
    run = claimed(store)
    with store.begin() as tx:
        request_cancel(tx, run.id)
    clock.advance(LEASE_S + 1)
    with store.begin() as tx:
        reap_runs(tx)
    assert (look(store, run).status, look(store, run).error_kind) == (RunStatus.CANCELLED, None)


def test_a_child_that_died_without_a_word_is_recorded_and_one_that_spoke_is_left_alone(store: Store) -> None:
    run = claimed(store)
    with store.begin() as tx:
        release_run(tx, run.id, run.epoch, FailureKind.OUT_OF_MEMORY, "killed")
        release_run(tx, run.id, run.epoch, FailureKind.ERROR, "again")
    assert (look(store, run).error_kind, look(store, run).error_message) == (FailureKind.OUT_OF_MEMORY, "killed")
    other = claimed(store)
    with store.begin() as tx:
        finish_run(tx, other.id, other.epoch, RunStatus.SUCCEEDED)
        release_run(tx, other.id, other.epoch, FailureKind.ERROR, "no word")
    assert look(store, other).status is RunStatus.SUCCEEDED


def test_whatever_a_run_says_can_be_stored_and_read_as_json(store: Store) -> None:
    """A path with bytes that are no text, a NUL in a log, a number that is none: both databases take them alike."""
    run = claimed(store)
    odd = {"path": "a\udce9b", "log": "x\x00y", "loss": math.nan, "deep": [{"k\ud800": math.inf}]}
    plain = {"path": "a\ufffdb", "log": "xy", "loss": None, "deep": [{"k\ufffd": None}]}
    with store.begin() as tx:
        add_event(tx, run.id, run.epoch, "odd", odd)
        report_step(tx, run.id, run.epoch, 1, total_steps=1, metrics={}, samples=[odd])
        finish_run(
            tx,
            run.id,
            run.epoch,
            RunStatus.FAILED,
            result=odd,
            error_kind=FailureKind.ERROR,
            error_message="x\x00\udce9",
        )
        assert events_of(tx, run.id)[2].detail == plain
        assert samples_of(tx, run.id) == [(1, plain)]
        assert (get_run(tx, run.id).result, get_run(tx, run.id).error_message) == (plain, "x\ufffd")
    other = claimed(store)
    with store.begin() as tx:
        release_run(tx, other.id, other.epoch, FailureKind.ERROR, "x\x00\udce9")
    assert look(store, other).error_message == "x\ufffd"


# Fencing


WRITES: dict[str, Callable[[Any, str, int], object]] = {
    "heartbeat": heartbeat,
    "event": lambda tx, run_id, epoch: add_event(tx, run_id, epoch, "kind", {}),
    "metrics": lambda tx, run_id, epoch: report_step(
        tx, run_id, epoch, 1, total_steps=2, metrics={"m": 1.0}, samples=[{"text": "t"}]
    ),
    "rewind": lambda tx, run_id, epoch: rewind(tx, run_id, epoch, 0),
    "checkpoint": lambda tx, run_id, epoch: register_checkpoint(tx, run_id, epoch, 1, "folder"),
    "change": lambda tx, run_id, epoch: owned_update(tx, run_id, epoch, versions="{}"),
    "end": lambda tx, run_id, epoch: finish_run(tx, run_id, epoch, RunStatus.SUCCEEDED),
}


def everything_of(store: Store, run: Run) -> list[Any]:
    with store.read() as tx:
        return [
            get_run(tx, run.id),
            events_of(tx, run.id),
            metrics_of(tx, run.id),
            samples_of(tx, run.id),
            checkpoints_of(tx, run.id),
        ]


@pytest.mark.parametrize("state", ["reaped", "claimed by another", "ended"])
def test_a_sleeper_that_wakes_is_refused_at_every_kind_of_write(store: Store, clock: Any, state: str) -> None:
    run = claimed(store)
    if state == "ended":
        with store.begin() as tx:
            finish_run(tx, run.id, run.epoch, RunStatus.SUCCEEDED)
    else:
        clock.advance(LEASE_S + 1)
        with store.begin() as tx:
            reap_runs(tx)
            if state == "claimed by another":
                resume_run(tx, run.id)
                assert claim_run(tx, "another") is not None
    before = everything_of(store, run)
    for write in WRITES.values():
        with pytest.raises(Fenced, match="no longer this worker's"), store.begin() as tx:
            write(tx, run.id, run.epoch)
    with store.begin() as tx:
        release_run(tx, run.id, run.epoch, FailureKind.ERROR, "late word")
    assert everything_of(store, run) == before


def test_the_owner_is_refused_nothing(store: Store) -> None:
    run = claimed(store)
    for write in WRITES.values():
        with store.begin() as tx:
            write(tx, run.id, run.epoch)


def test_a_refused_write_takes_back_all_of_its_transaction(store: Store) -> None:
    run = claimed(store)

    def good_and_bad(tx: Any) -> None:
        add_event(tx, run.id, run.epoch, "good", {})
        add_event(tx, run.id, run.epoch + 1, "bad", {})

    with pytest.raises(Fenced), store.begin() as tx:
        good_and_bad(tx)
    assert "good" not in kinds_of(store, run)


# Metrics, samples, checkpoints


def test_a_number_that_is_not_finite_is_kept_as_a_gap(store: Store) -> None:
    run = claimed(store)
    values = {"a": 1.5, "b": math.nan, "c": math.inf, "d": -math.inf}
    with store.begin() as tx:
        report_step(tx, run.id, run.epoch, 3, total_steps=9, metrics=values, samples=[])
        assert metrics_of(tx, run.id) == [
            MetricPoint(3, "a", 1.5), MetricPoint(3, "b", None), MetricPoint(3, "c", None), MetricPoint(3, "d", None),
        ]  # fmt: skip
        assert tx.scalar(sa.text("select count(*) from run_metric where value is null")) == 3
        assert (get_run(tx, run.id).step, get_run(tx, run.id).total_steps) == (3, 9)


def test_metrics_are_read_from_a_step_on_and_by_name(store: Store) -> None:
    run = claimed(store)
    with store.begin() as tx:
        for step in range(4):
            report_step(tx, run.id, run.epoch, step, total_steps=4, metrics={"x": step, "y": -step}, samples=[])
        report_step(tx, run.id, run.epoch, 3, total_steps=4, metrics={"x": 30.0}, samples=[])  # the step again
        assert [point.step for point in metrics_of(tx, run.id, names=("x",))] == [0, 1, 2, 3]
        assert metrics_of(tx, run.id, after=2) == [MetricPoint(3, "x", 30.0), MetricPoint(3, "y", -3.0)]
        assert metric_names(tx, run.id) == ["x", "y"]


def test_rewinding_forgets_what_came_after_the_step_and_counts_it(store: Store) -> None:
    run, other = claimed(store), claimed(store)
    with store.begin() as tx:
        for each in (run, other):
            for step in range(1, 6):
                sample = [{"text": f"{step}"}]
                report_step(
                    tx, each.id, each.epoch, step, total_steps=9, metrics={"x": step, "y": step}, samples=sample
                )
        assert rewind(tx, run.id, run.epoch, 3) == 4
        assert [point.step for point in metrics_of(tx, run.id, names=("x",))] == [1, 2, 3]
        assert [step for step, _ in samples_of(tx, run.id)] == [1, 2, 3]
        assert get_run(tx, run.id).step == 3
        assert len(metrics_of(tx, other.id)) == 10
        assert samples_of(tx, other.id, step=5) == [(5, {"text": "5"})]


def test_checkpoints_are_listed_newest_first_and_a_step_saved_again_is_the_new_one(store: Store) -> None:
    run = claimed(store)
    with store.begin() as tx:
        for step, folder in ((10, "a"), (20, "b"), (10, "c")):
            register_checkpoint(tx, run.id, run.epoch, step, folder)
        assert [(each.step, each.folder) for each in checkpoints_of(tx, run.id)] == [(20, "b"), (10, "c")]
        forget_checkpoint(tx, run.id, 20)
        assert [each.step for each in checkpoints_of(tx, run.id)] == [10]


# The state machine against a model of it, in any order


@dataclass
class Model:
    """What should be true of one run."""

    status: RunStatus = RunStatus.QUEUED
    epoch: int = 0
    attempt: int = 0
    lease_until: float = 0.0
    wants_cancel: bool = False
    events: list[str] = field(default_factory=lambda: ["queued"])


class Machine(RuleBasedStateMachine):
    """Many runs and many workers; some sleep through their lease and write all the same."""

    store: Store
    clock: Any
    workers = Bundle("workers")  # (run id, epoch) as a worker holds it, whether it is still true or not

    def __init__(self) -> None:
        super().__init__()
        with self.store.begin() as tx:
            for table in ("run_event", "run"):
                tx.execute(sa.text(f"delete from {table}"))
        self.runs: dict[str, Model] = {}

    def owns(self, worker: tuple[str, int]) -> bool:
        model = self.runs[worker[0]]
        return model.status is RunStatus.RUNNING and model.epoch == worker[1]

    @initialize()
    def create(self) -> None:
        for _ in range(3):
            self.clock.advance(0.01)
            self.runs[make.make_run(self.store).id] = Model()

    @rule(target=workers)
    def claim(self) -> Any:
        return self._claim()

    def _claim(self) -> Any:
        waiting = [run_id for run_id, model in self.runs.items() if model.status is RunStatus.QUEUED]
        with self.store.begin() as tx:
            run = claim_run(tx, "worker")
        if not waiting:
            assert run is None
            return multiple()
        assert run is not None
        assert run.id == waiting[0]
        model = self.runs[run.id]
        model.status, model.epoch, model.attempt = RunStatus.RUNNING, model.epoch + 1, model.attempt + 1
        model.lease_until = self.clock.now + LEASE_S
        model.events.append("started")
        assert run.epoch == model.epoch
        return run.id, run.epoch

    @rule(worker=workers, is_beat=st.booleans())
    def write(self, worker: tuple[str, int], is_beat: bool) -> None:
        self._write(worker, is_beat)

    def _write(self, worker: tuple[str, int], is_beat: bool) -> None:
        model, is_owner = self.runs[worker[0]], self.owns(worker)
        with contextlib.nullcontext() if is_owner else pytest.raises(Fenced), self.store.begin() as tx:
            if is_beat:
                assert heartbeat(tx, *worker) == model.wants_cancel
            else:
                add_event(tx, *worker, "said", {})
        if is_owner and is_beat:
            model.lease_until = self.clock.now + LEASE_S
        elif is_owner:
            model.events.append("said")

    @rule(worker=consumes(workers), status=st.sampled_from([*FINAL, None]))
    def end(self, worker: tuple[str, int], status: RunStatus | None) -> None:
        """With a word of its own, or (None) found dead by its supervisor."""
        model, is_owner = self.runs[worker[0]], self.owns(worker)
        if status is None:
            with self.store.begin() as tx:
                release_run(tx, *worker, FailureKind.ERROR, "no word")
            status = RunStatus.CANCELLED if model.wants_cancel else RunStatus.FAILED
        else:
            with contextlib.nullcontext() if is_owner else pytest.raises(Fenced), self.store.begin() as tx:
                finish_run(tx, *worker, status)
        if is_owner:
            model.status = status
            model.events.append(status.value)

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        run_id = data.draw(st.sampled_from(sorted(self.runs)))
        model = self.runs[run_id]
        if model.status in FINAL:
            with pytest.raises(Conflict), self.store.begin() as tx:
                request_cancel(tx, run_id)
            return
        with self.store.begin() as tx:
            request_cancel(tx, run_id)
        if model.status is RunStatus.QUEUED:
            model.status = RunStatus.CANCELLED
            model.events.append("cancelled")
        elif not model.wants_cancel:
            model.events.append("cancel_requested")
        model.wants_cancel = True

    @rule(data=st.data(), is_sensible=st.booleans())
    def resume(self, data: st.DataObject, is_sensible: bool) -> None:
        ended = [run_id for run_id, model in self.runs.items() if model.status in FINAL]
        run_id = data.draw(st.sampled_from(sorted(ended if is_sensible and ended else self.runs)))
        model = self.runs[run_id]
        if model.status in (RunStatus.FAILED, RunStatus.CANCELLED):
            self._resume(run_id)
        else:
            with pytest.raises(Conflict), self.store.begin() as tx:
                resume_run(tx, run_id)

    @rule(seconds=st.sampled_from([1.0, LEASE_S / 2, LEASE_S, LEASE_S + 1]))
    def wait_and_reap(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self._reap()

    @rule(worker=workers, is_beat=st.booleans())
    def wake_up_when_another_has_the_run(self, worker: tuple[str, int], is_beat: bool) -> None:
        if not self.owns(worker):
            return
        self.clock.advance(LEASE_S + 1)
        self._reap()
        self._resume(worker[0])
        while self.runs[worker[0]].status is RunStatus.QUEUED:
            self._claim()
        self._write(worker, is_beat)

    def _resume(self, run_id: str) -> None:
        with self.store.begin() as tx:
            resume_run(tx, run_id)
        model = self.runs[run_id]
        model.status, model.wants_cancel = RunStatus.QUEUED, False
        model.events.append("resumed")

    def _reap(self) -> None:
        lost = {
            run_id
            for run_id, model in self.runs.items()
            if model.status is RunStatus.RUNNING and model.lease_until < self.clock.now
        }
        with self.store.begin() as tx:
            assert set(reap_runs(tx)) == lost
        for run_id in lost:
            model = self.runs[run_id]
            model.status = RunStatus.CANCELLED if model.wants_cancel else RunStatus.FAILED
            model.epoch += 1
            model.events.append("worker_lost")

    @invariant()
    def the_store_says_what_the_model_says(self) -> None:
        with self.store.read() as tx:
            for run_id, model in self.runs.items():
                run = get_run(tx, run_id)
                assert (run.status, run.epoch, run.attempt) == (model.status, model.epoch, model.attempt)
                assert (run.lease_until is not None) == (run.status is RunStatus.RUNNING)
                assert (run.ended_at is not None) == run.status.is_final
                events = events_of(tx, run_id)
                assert [event.kind for event in events] == model.events
                assert [event.seq for event in events] == list(range(1, len(events) + 1))


def test_any_order_of_what_can_happen_to_runs(store: Store, clock: Any) -> None:
    class Here(Machine):
        pass

    Here.store, Here.clock = store, clock
    n_examples = 60 if store.is_sqlite else 15
    run_state_machine_as_test(Here, settings=settings(max_examples=n_examples, stateful_step_count=25, deadline=None))


# Processes


def _claim_all(url: str, name: str, folder: str) -> None:
    """Claim until nothing is left, half of the time dying without an end; write down what was claimed."""
    from data.store import open_store

    store = open_store(url, migrate=False)
    try:
        with Path(folder, name).open("w") as file:
            while True:
                with store.begin() as tx:
                    run = claim_run(tx, name)
                if run is None:
                    return
                file.write(f"{run.id} {run.epoch}\n")
                with store.begin() as tx:
                    add_event(tx, run.id, run.epoch, "worked", {})
                    finish_run(tx, run.id, run.epoch, RunStatus.SUCCEEDED)
    finally:
        store.close()


def test_eight_processes_claim_a_hundred_runs_each_once(store: Store, tmp_path: Path) -> None:
    made = {make.make_run(store).id for _ in range(100)}
    folder = tmp_path / "claims"
    folder.mkdir()
    with spawning() as processes:
        workers = [processes.Process(target=_claim_all, args=(store.url, f"w{n}", str(folder))) for n in range(8)]
        for worker in workers:
            worker.start()
    for worker in workers:
        worker.join(timeout=120)
    assert [worker.exitcode for worker in workers] == [0] * 8
    claims = [line.split()[0] for path in folder.iterdir() for line in path.read_text().splitlines()]
    assert len(claims) == 100
    assert set(claims) == made
    with store.read() as tx:
        runs = list_runs(tx, status=RunStatus.SUCCEEDED, limit=200)
        assert {run.id for run in runs} == made
        assert {run.attempt for run in runs} == {1}
        assert all([event.kind for event in events_of(tx, run.id)][-2:] == ["worked", "succeeded"] for run in runs)
