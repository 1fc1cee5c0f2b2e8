"""Plain records that cross package borders: frozen dataclasses and enums, no behaviour.

Times are seconds since the epoch, UTC. Ids are text (`data.store.ids`). Messages are chat messages,
`({"role": ..., "content": ...}, ...)`, the last one from the user.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from data.label_settings import LabelSettings

Message = dict[str, str]
Messages = tuple[Message, ...]


class Role(StrEnum):
    """What a person may do; each role may do what the ones before it may."""

    ANNOTATOR = "annotator"
    REVIEWER = "reviewer"
    RESEARCHER = "researcher"
    ADMIN = "admin"

    def covers(self, other: Role) -> bool:
        """Whether this role may do what `other` may."""
        order = list(Role)
        return order.index(self) >= order.index(other)


class RunStatus(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        return self in (RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.CANCELLED)


class RunKind(StrEnum):
    SAMPLE = "sample"
    REWARD = "reward"
    PPO = "ppo"
    SFT = "sft"
    DPO = "dpo"
    SCORE = "score"
    COMPARE = "compare"
    FEATURES = "features"
    RLOO = "rloo"
    BASELINES = "baselines"
    CHECK = "check"  # of what a PPO run would need, before it starts


class FailureKind(StrEnum):
    """Why a run failed, in one word that a screen can turn into advice."""

    BAD_INPUT = "bad_input"
    NOT_FINITE = "not_finite"
    OUT_OF_MEMORY = "out_of_memory"
    DISK_FULL = "disk_full"
    WORKER_LOST = "worker_lost"
    ERROR = "error"


class RankingStatus(StrEnum):
    """What an annotator answered: a ranking, that no response is acceptable, or nothing, with a reason."""

    RANKED = "ranked"
    UNACCEPTABLE = "unacceptable"
    SKIPPED = "skipped"


class Purpose(StrEnum):
    """Why an annotator got a task: to have it ranked, or, unseen by them, to check how they rank.

    Gold: the expected ranking is known. Repeat: the same person ranked it before.
    """

    ORDINARY = "ordinary"
    GOLD = "gold"
    REPEAT = "repeat"


class Split(StrEnum):
    TRAIN = "train"
    EVAL = "eval"


@dataclass(frozen=True)
class Person:
    """Somebody who may sign in, or the author of an imported ranking (who can't: no password, `is_external`)."""

    id: str
    name: str
    role: Role
    is_external: bool
    has_password: bool
    created_at: float
    disabled_at: float | None


@dataclass(frozen=True)
class Project:
    id: str
    name: str
    k: int
    overlap: int
    guidelines: str
    guidelines_version: int
    skip_reasons: tuple[str, ...]
    max_skips: int
    flags: tuple[str, ...]
    settings: LabelSettings
    created_at: float


@dataclass(frozen=True)
class Prompt:
    id: str
    project_id: str
    messages: Messages
    split: Split | None
    fingerprint: str
    meta: dict[str, Any]
    created_at: float
    facts: str = ""


@dataclass(frozen=True)
class NewPrompt:
    """A prompt on its way in. `facts`: what annotators see beside it and the policy never does."""

    messages: Messages
    split: Split | None = None
    external_id: str | None = None
    meta: dict[str, Any] = field(default_factory=dict)
    facts: str = ""


@dataclass(frozen=True)
class NewResponse:
    """A response on its way in. `provenance` says where it came from; `model` is empty where nobody knows.

    `badges`: the names of what is wrong with it, as annotators may see it.
    """

    text: str
    model: str = ""
    provenance: dict[str, Any] = field(default_factory=dict)
    badges: tuple[str, ...] = ()


@dataclass(frozen=True)
class Response:
    id: str
    prompt_id: str
    text: str
    model: str
    provenance: dict[str, Any]
    badges: tuple[str, ...] = ()


@dataclass(frozen=True)
class Task:
    """One prompt with its K responses, in their stored order (position 0 to K-1)."""

    id: str
    project_id: str
    prompt_id: str
    messages: Messages
    responses: tuple[Response, ...]
    facts: str = ""


@dataclass(frozen=True)
class Assignment:
    """A task given to an annotator until `lease_expires_at`.

    `display_order[i]` is the stored position of the response that is shown in place i.
    """

    slot_id: str
    task: Task
    annotator_id: str
    lease_token: str
    lease_expires_at: float
    display_order: tuple[int, ...]
    draft: dict[str, Any] | None
    purpose: Purpose = Purpose.ORDINARY


@dataclass(frozen=True)
class Detail:
    """What an annotator may say beside the ranks; lists go by the responses' positions, empty where nothing was said.

    `unplaced`: positions that were placed together as "worse, in no order"; they share the last rank and are no tie.
    `acceptable[i]`: True, False, or None where it was left open. `flags[i]`: names from the project's list.
    `quality[i]`: 1 (very bad) to 7 (very good), or None. `strength`: 1 to 4, how much better the best is than the next.
    """

    unplaced: tuple[int, ...] = ()
    acceptable: tuple[bool | None, ...] = ()
    flags: tuple[tuple[str, ...], ...] = ()
    quality: tuple[int | None, ...] = ()
    strength: int | None = None


@dataclass(frozen=True)
class NewRanking:
    """A judgement on its way in. `ranks[i]` belongs to the response at position i; None unless ranked.

    `display_order` is None where nobody knows in which order the responses stood. `is_extra`: of an answer from a file,
    that it was one more than wanted where it was given.
    """

    task_id: str
    annotator_id: str
    submission_key: str
    status: RankingStatus
    ranks: tuple[int, ...] | None
    display_order: tuple[int, ...] | None
    lease_token: str | None = None
    skip_reason: str | None = None
    comment: str = ""
    detail: Detail = field(default_factory=Detail)
    duration_ms: int | None = None
    source: str = "app"
    guidelines_version: int | None = None  # the one that the annotator saw; None: the current one, of a file unknown
    is_repeat: bool = False  # the second answer that a check on consistency asked for
    is_extra: bool = False


@dataclass(frozen=True)
class Ranking:
    """A stored judgement. Of one from a file `display_order`, `duration_ms` and `guidelines_version` may be unknown."""

    id: str
    task_id: str
    annotator_id: str
    submission_key: str
    status: RankingStatus
    ranks: tuple[int, ...] | None
    display_order: tuple[int, ...] | None
    skip_reason: str | None
    comment: str
    duration_ms: int | None
    guidelines_version: int | None
    is_late: bool
    is_extra: bool
    version: int
    supersedes_id: str | None
    source: str
    created_at: float
    detail: Detail = field(default_factory=Detail)
    slot_id: str | None = None
    purpose: Purpose = Purpose.ORDINARY


@dataclass(frozen=True)
class NewAdjudication:
    """A researcher's decision on its way in: ranks of their own, or those of the ranking `chosen_id`.

    `seen`: the rankings that it was made on; `agreement`: of their annotators, then.
    """

    task_id: str
    decided_by: str
    submission_key: str
    ranks: tuple[int, ...]
    unplaced: tuple[int, ...]
    chosen_id: str | None
    reason: str
    seen: tuple[str, ...]
    agreement: float | None
    supersedes_id: str | None = None


@dataclass(frozen=True)
class Adjudication:
    id: str
    task_id: str
    decided_by: str
    ranks: tuple[int, ...]
    unplaced: tuple[int, ...]
    chosen_id: str | None
    reason: str
    seen: tuple[str, ...]
    agreement: float | None
    supersedes_id: str | None
    created_at: float


class SubmitOutcome(StrEnum):
    """What became of a submission. All four are final: the browser may forget the submission."""

    STORED = "stored"
    REPEATED = "repeated"  # the same submission had been stored before
    SUPERSEDED = "superseded"  # this person had already answered the task, in another tab
    REFUSED = "refused"  # it can't be right: not this task's responses, or not ranks


@dataclass(frozen=True)
class Snapshot:
    id: str
    project_id: str
    config: dict[str, Any]
    counts: dict[str, Any]
    content_hash: str
    created_at: float
    created_by: str | None
    prompts_hash: str | None = None  # of the project's prompts as they were; None: an older release froze none


@dataclass(frozen=True)
class Run:
    id: str
    kind: RunKind
    status: RunStatus
    project_id: str | None
    snapshot_id: str | None
    reward_run_id: str | None
    config: dict[str, Any]
    versions: dict[str, Any]
    result: dict[str, Any]
    epoch: int
    attempt: int
    step: int
    total_steps: int | None
    created_at: float
    started_at: float | None
    heartbeat_at: float | None
    lease_until: float | None
    ended_at: float | None
    cancel_requested_at: float | None
    error_kind: FailureKind | None
    error_message: str | None
    created_by: str | None


@dataclass(frozen=True)
class RunEvent:
    run_id: str
    seq: int
    at: float
    kind: str
    detail: dict[str, Any]


@dataclass(frozen=True)
class MetricPoint:
    """`value` is None where it was not a finite number; a chart then shows a gap."""

    step: int
    name: str
    value: float | None


@dataclass(frozen=True)
class Checkpoint:
    run_id: str
    step: int
    folder: str
    created_at: float
