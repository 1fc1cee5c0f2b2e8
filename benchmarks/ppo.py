"""How long one PPO update takes: ours beside TRL 1.12's PPOTrainer, the last version that has one.

    python benchmarks/ppo.py [--case NAME] [--updates N] [--runs N] [--threads N] [--trl FOLDER] [--quick] [--json]

equal_lengths        prompts of P tokens and responses of R, four full models; seconds for an update
real_lengths         prompts between P/8 and P tokens, and a policy whose responses end by themselves, R/3 in the mean
four_per_prompt      as real_lengths, four responses to each prompt
memory_shared_roles  peak memory of the process with one base and an adapter for each role, beside four full models

Rows that end in _generate are the part of the update that sampled. Same model (LLaMA of 6 layers, random, else in the
demo model's shape: width 576, 49,152 tokens, tied embeddings), same prompts, float32, two epochs of one minibatch and
micro-batches of 8 responses on both sides. TRL 1.12 is installed into a folder of its own by `pip install --no-deps
--target`, unless `--trl` names one. Each run is a process of its own, in turns; the first update warms up, of the
others the best counts, and the least memory. `--quick`: a smaller model, a quarter of the lengths, one run.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import platform
import random
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

TRL = "trl==1.12.0"
PAD, END, VOCABULARY, EPOCHS, REWARD = 0, 1, 49_152, 2, "reward"
CASES = ("equal_lengths", "real_lengths", "four_per_prompt", "memory_shared_roles")


@dataclass(frozen=True)
class Job:
    """What both sides do."""

    case: str
    folder: str
    batch: int
    prompt: int
    response: int
    updates: int
    threads: int
    trl: str
    micro_rows: int = 8

    @property
    def per_prompt(self) -> int:
        return 4 if self.case == "four_per_prompt" else 1

    def prompts(self) -> list[list[int]]:
        """Random token ids; the same for both sides."""
        rng = random.Random(0)
        n = self.batch // self.per_prompt
        shortest = self.prompt if self.case == "equal_lengths" else self.prompt // 8
        lengths = [rng.randint(shortest, self.prompt) for _ in range(n)]
        return [[rng.randrange(3, VOCABULARY) for _ in range(length)] for length in lengths]


def save_models(folder: Path, *, response: int, ends: bool, quick: bool) -> None:
    """A random policy with a tokenizer, and a reward model made from it: as a run's folder, and with an adapter.

    `ends`: responses end by themselves after about a third of `response` tokens in the mean. For that all states share
    a direction, and the end token's row of the head lies along it.
    """
    import torch
    from peft import LoraConfig, TaskType, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    from training.launch.config import RewardConfig
    from training.lm.models import ModelSource, load_classifier, load_encoder, weights_hash

    torch.manual_seed(0)
    shape = (96, 256, 2, 3, 1) if quick else (576, 1536, 6, 9, 3)
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    config = LlamaConfig(
        vocab_size=VOCABULARY, max_position_embeddings=4096, pad_token_id=PAD, eos_token_id=END, bos_token_id=None,
        tie_word_embeddings=True, **dict(zip(names, shape, strict=True)),
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    width = shape[0]
    with torch.no_grad():
        model.lm_head.weight[END] = 0
        if ends:
            direction = torch.nn.functional.normalize(torch.randn(width), dim=0)
            model.get_input_embeddings().weight.add_(4 * 0.02 * math.sqrt(width) * direction)
            mean = model.model(torch.randint(3, VOCABULARY, (16, 64))).last_hidden_state.mean((0, 1))
            wanted = math.log(3 / response * VOCABULARY)  # by so much the end's mean logit is above the others'
            model.lm_head.weight[END] = model.lm_head.weight.mean(0) + wanted * mean / mean.dot(mean)
    save_with_tokenizer(model, folder / "policy")
    source = ModelSource("policy", str(folder / "policy"), weights_hash(folder / "policy"))
    classifier = load_classifier(source, torch.float32, PAD)
    place = folder / "home" / "runs" / REWARD
    save_with_tokenizer(classifier, place / "model")
    encoder = load_encoder(source)
    info = {
        "shift": 0.0, "std": 1.0, "n": 1, "max_length": 4096, "template_hash": encoder.template_hash,
        "vocabulary_hash": encoder.vocabulary_hash, "base_model": "policy", "base_revision": source.revision,
        "has_adapter": True,
    }  # fmt: skip
    (place / "model" / "reward_config.json").write_text(json.dumps(info))
    defaults = RewardConfig()
    lora = LoraConfig(
        r=defaults.lora_rank, lora_alpha=defaults.lora_alpha, target_modules="all-linear", task_type=TaskType.SEQ_CLS
    )
    get_peft_model(classifier, lora).save_pretrained(place / "adapter")


def save_with_tokenizer(model: Any, folder: Path) -> None:
    """Write a model, and a tokenizer that has a word for each of its tokens."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    model.save_pretrained(folder)
    words = {f"<{n}>": n for n in range(model.config.vocab_size)}
    built = Tokenizer(models.WordLevel(words, unk_token="<2>"))
    PreTrainedTokenizerFast(
        tokenizer_object=built, pad_token="<0>", eos_token="<1>", unk_token="<2>", padding_side="left"
    ).save_pretrained(folder)


class Quiet:
    """Stands in for a run's reporter: nothing is stored while the clock runs, on either side. Keeps the times."""

    def __init__(self, folder: Path) -> None:
        from data.files.paths import Home

        self.home, self.folder = Home(folder / "home"), folder / "run"
        self.run = SimpleNamespace(reward_run_id=REWARD, id="bench", epoch=1)
        self.models: dict[str, str] = {}
        self.updates: list[dict[str, float]] = []
        self.phases: list[dict[str, float]] = []  # seconds of each
        self.layout = ""

    def event(self, kind: str, **detail: Any) -> None:
        if kind == "roles":
            self.layout = detail["layout"]

    def step(self, _step: int, _total: int, metrics: dict[str, float], _samples: Any = None) -> None:
        phases = {phase: metrics[f"time/{phase}_s"] for phase in ("generate", "score", "update")}
        self.phases.append(phases)
        tokens = metrics["response/length_mean"]
        self.updates.append({"update": sum(phases.values()), "generate": phases["generate"], "tokens": tokens})

    def should_stop(self) -> bool:
        return False

    def raise_if_stopping(self) -> None:
        return None


def ours(job: Job) -> list[dict[str, float]]:
    """Seconds of each update by our loop."""
    import training.ppo.loop
    from data.fields import from_dict
    from training.launch.config import PPOConfig
    from training.lm.models import ModelSource, load_encoder, set_up_machine, weights_hash
    from training.ppo.build_roles import build_roles
    from training.ppo.rollout import PromptItem
    from training.ppo.run import make_learner, share_prompts

    is_shared = job.case == "memory_shared_roles"
    config = from_dict(
        PPOConfig,
        {
            "adapter": "lora" if is_shared else "full",
            "machine.device": "cpu",
            "machine.precision": "fp32",
            "machine.threads": job.threads,
            "iterations": job.updates,
            "sampling.prompts_per_iteration": job.batch // job.per_prompt,
            "optimiser.ppo_epochs": EPOCHS,
            "sampling.responses_per_prompt": job.per_prompt,
            "sampling.max_new_tokens": job.response,
            "sampling.batch_size": job.batch,
            "evaluation.token_rows": 0,
            "machine.micro_batch_tokens": job.micro_rows * (job.prompt + job.response),
            "machine.checkpoint_every": 10**6,
            "evaluation.prompts": 0,
        },
    )
    reporter, place = Quiet(Path(job.folder)), str(Path(job.folder) / "policy")
    machine, source = set_up_machine(config.machine), ModelSource("policy", place, weights_hash(Path(place)))
    encoder = load_encoder(source)
    roles = build_roles(config, reporter, machine, source, encoder)  # type: ignore[arg-type]
    if is_shared != reporter.layout.startswith("one base"):
        raise SystemExit(f"not the layout to measure: {reporter.layout}")
    learner = make_learner(config, reporter, roles, encoder)  # type: ignore[arg-type]
    prompts = [PromptItem(str(n), ({"role": "user", "content": ""},), ids) for n, ids in enumerate(job.prompts())]
    share_prompts(config, reporter, roles, prompts, encoder)  # type: ignore[arg-type]
    if not roles.shares_prompts:
        raise SystemExit("prompts were not shared")
    training.ppo.loop.save = lambda *_words: None  # as on the other side
    training.ppo.loop.train(config, learner, prompts, encoder, machine, reporter)  # type: ignore[arg-type]
    return reporter.updates


def theirs(job: Job) -> list[dict[str, float]]:
    """Seconds of each update by TRL's PPOTrainer."""
    sys.path.insert(0, job.trl)
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    import torch
    import trl.experimental.ppo.ppo_trainer as peer
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer, TrainerCallback
    from trl.experimental.ppo import PPOConfig, PPOTrainer

    folder = Path(job.folder)
    tokenizer = AutoTokenizer.from_pretrained(folder / "policy", padding_side="left")
    policy, reference = (AutoModelForCausalLM.from_pretrained(folder / "policy", dtype=torch.float32) for _ in "ab")
    place = folder / "home" / "runs" / REWARD / "model"
    value, reward = (
        AutoModelForSequenceClassification.from_pretrained(place, num_labels=1, dtype=torch.float32) for _ in "ab"
    )
    rows = [{"input_ids": ids} for ids in job.prompts() for _ in range(job.per_prompt)]
    micro = min(job.micro_rows, job.batch)
    arguments = PPOConfig(
        output_dir=str(folder / "trl"), per_device_train_batch_size=micro, num_mini_batches=1,
        gradient_accumulation_steps=job.batch // micro, total_episodes=job.batch * job.updates, num_ppo_epochs=EPOCHS,
        local_rollout_forward_batch_size=job.batch, response_length=job.response, stop_token="eos", temperature=1.0,
        missing_eos_penalty=1.0, kl_coef=0.05, num_sample_generations=0, use_cpu=True, bf16=False, report_to=[],
        gradient_checkpointing=False, save_strategy="no", learning_rate=1e-6,
    )  # fmt: skip
    seconds: dict[str, list[float]] = {"update": [], "generate": []}
    plain = peer.batch_generation

    def timed(*words: Any, **more: Any) -> Any:
        started = time.perf_counter()
        found = plain(*words, **more)
        seconds["generate"].append(time.perf_counter() - started)
        return found

    class Clock(TrainerCallback):  # type: ignore[misc]
        last = 0.0

        def on_train_begin(self, *_words: Any, **_more: Any) -> None:
            self.last = time.perf_counter()

        def on_step_end(self, *_words: Any, **_more: Any) -> None:
            now = time.perf_counter()
            seconds["update"].append(now - self.last)
            self.last = now

    peer.batch_generation = timed
    trainer = PPOTrainer(
        args=arguments, processing_class=tokenizer, model=policy, ref_model=reference, reward_model=reward,
        value_model=value, train_dataset=Dataset.from_list(rows), eval_dataset=Dataset.from_list(rows[:1]),
        callbacks=[Clock()],
    )  # fmt: skip
    trainer.save_model = lambda *_words, **_more: None
    trainer.train()
    return [
        {"update": update, "generate": generate, "tokens": math.nan}
        for update, generate in zip(seconds["update"], seconds["generate"], strict=True)
    ]


def _child(name: str, job: Job, answer: Any) -> None:
    import warnings

    import torch

    warnings.simplefilter("ignore")
    os.dup2(2, 1)  # what the trainers print must not stand in our answer
    if job.threads:
        torch.set_num_threads(job.threads)
    updates = {"ours": ours, "theirs": theirs}[name](job)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    answer.send((updates[1:] or updates, peak / 2**20))


def in_a_process(name: str, job: Job) -> tuple[list[dict[str, float]], float]:
    """(updates after the first, peak MB) of one side, alone in a process."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(name, job, sender))
    process.start()
    sender.close()
    try:
        found: tuple[list[dict[str, float]], float] = receiver.recv()
    except EOFError:
        raise SystemExit(f"{name} failed in {job.case}") from None
    finally:
        process.join()
    return found


def row(name: str, mine: list[float], peers: list[float], unit: str) -> dict[str, Any]:
    best, other = min(mine), min(peers)
    runs = {"ours": [round(each, 3) for each in mine], "peer": [round(each, 3) for each in peers]}
    found = {"case": name, "ours": round(best, 3), "peer": round(other, 3), "ratio": round(other / best, 2)}
    return found | {"unit": unit, "runs": runs}


def rows_of(job: Job, runs: int) -> list[dict[str, Any]]:
    """The rows of one case, both sides in turns."""
    found: dict[str, list[tuple[list[dict[str, float]], float]]] = {"ours": [], "theirs": []}
    for _ in range(runs):
        for side, results in found.items():
            results.append(in_a_process(side, job))
    peaks = [[peak for _, peak in found[side]] for side in found]
    memory = row(f"{job.case}_mb", *peaks, "MB, peak of the process")
    if job.case == "memory_shared_roles":
        return [memory | {"case": job.case}]
    rows = [memory]
    for name, suffix in (("generate", "_generate"), ("update", "")):
        times = [[each[name] for updates, _ in found[side] for each in updates] for side in found]
        rows.insert(0, row(job.case + suffix, *times, "s per update"))
    lengths = [each["tokens"] for updates, _ in found["ours"] for each in updates]
    rows[0]["response_tokens"] = round(sum(lengths) / len(lengths), 1)
    return rows


def measure(cases: list[str], updates: int, runs: int, threads: int, trl: str, *, quick: bool) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    shrink = 4 if quick else 1
    batch, prompt, response = 32 // shrink, 256 // shrink, 64 // shrink
    with tempfile.TemporaryDirectory() as scratch:
        peer = trl or install_trl(Path(scratch) / "trl")
        for case in cases:
            folder = Path(scratch) / case
            save_models(folder, response=response, ends=case in ("real_lengths", "four_per_prompt"), quick=quick)
            rows += rows_of(Job(case, str(folder), batch, prompt, response, updates, threads, peer), runs)
    packages = ("torch", "transformers", "peft")
    return {
        "benchmark": "ppo",
        "machine": {"system": platform.platform(), "cores": os.cpu_count(), "threads": threads or "torch's choice"},
        "versions": {"python": platform.python_version(), "peer": TRL} | {name: version(name) for name in packages},
        "sizes": {"batch": batch, "prompt": prompt, "response": response, "updates": updates, "quick": quick},
        "rows": rows,
    }


def install_trl(folder: Path) -> str:
    """TRL alone, without what it needs: transformers and the others are the environment's own."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), TRL]
    if subprocess.run(command, check=False, stdout=sys.stderr).returncode:
        raise SystemExit(f"{TRL} could not be installed; name a folder that has it with --trl")
    return str(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=CASES, action="append", help="only this one; may be repeated")
    parser.add_argument("--updates", type=int, default=3, help="updates of a run; the first is not counted")
    parser.add_argument("--runs", type=int, default=2, help="runs of each side (default: 2)")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads of torch (default: its own choice)")
    parser.add_argument("--trl", default="", metavar="FOLDER", help=f"a folder that holds {TRL}")
    parser.add_argument("--quick", action="store_true", help="a smaller model, a quarter of the lengths, one run")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    given = parser.parse_args()
    runs = 1 if given.quick else given.runs
    found = measure(given.case or list(CASES), given.updates, runs, given.threads, given.trl, quick=given.quick)
    if given.json:
        print(json.dumps(found))
        return
    print("ratio above 1: ours is better")
    for each in found["rows"]:
        numbers = f"{each['ours']:>9,.3f}   TRL {each['peer']:>9,.3f}   ratio {each['ratio']:.2f}"
        print(f"{each['case']:<28} {numbers}   {each['unit']}")


if __name__ == "__main__":
    main()
