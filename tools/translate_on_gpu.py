"""Translation on a machine with a GPU: trains, translates and times; scores are made elsewhere.

    python tools/translate_on_gpu.py split --other PAIRS.tsv.xz --out FOLDER
    python tools/translate_on_gpu.py prepare --pairs FOLDER --out DATA.npz --vocabulary 8000
    python tools/translate_on_gpu.py all --data DATA.npz --out FOLDER --seconds 670
    python tools/translate_on_gpu.py pipeline --data DATA.npz --out FOLDER --direction en-de
    python tools/translate_on_gpu.py pairs --data SOFTWARE.npz --out FOLDER --first-seed 2
    python tools/translate_on_gpu.py latency --data DATA.npz --out FOLDER --direction en-de
    python tools/translate_on_gpu.py speed --data DATA.npz
    python tools/translate_on_gpu.py check

`split` makes aligned files of a table (source, target, origin): for the corpus `software`, which
needs `--corpus software` in `all`. `prepare` runs where the text is: it learns the vocabulary and
writes the numbers. `all` starts the pipelines of both directions and two seeds side by side, then
the latencies. Each writes a line of JSON after every phase, so nothing is lost when the machine is.
With `--rules` the networks also translate by other rules for repeated tokens, for the study
`translation_rules`. `pairs` trains on 20 to 310 thousand pairs side by side, for the study
`translation_pairs`; the last training gets the seconds that are left. Both go with `--no-weights`
where the weights need not come back.
`speed` says how long a step takes, each way; `all --choosing 60` takes the fastest of them. `check`
compares attention of short sentences with torch's, on this GPU.
"""

import argparse
import gzip
import json
import lzma
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from triptych.core.files import replacing, write_bytes, write_text
from triptych.models.encoder_decoder import EncoderDecoder, PairShape
from triptych.models.short_attention import attend
from triptych.studies.refinement.real_translation.study import LARGER, RealTranslation, units
from triptych.studies.refinement.shared.files import read_lines
from triptych.studies.refinement.shared.more_phases import RulesPipeline, WatchedPipeline
from triptych.studies.refinement.shared.pipeline import (
    SETS,
    Pairs,
    Pipeline,
    Plan,
    latencies,
)
from triptych.studies.refinement.shared.splitting import AlignedPair, split_by_origin
from triptych.studies.refinement.shared.translating import Refinement
from triptych.studies.refinement.translation_pairs.study import TranslateSome, TranslationPairs
from triptych.studies.refinement.translation_pairs.study import units as units_of_pairs
from triptych.training.translation import Corruption

DIRECTIONS = ("en-de", "de-en")
PART = 15_000_000  # bytes of one part of the weights, which go back in parts


def log(*words: object) -> None:
    print(time.strftime("%H:%M:%S"), *words, flush=True)


def load(path: Path) -> Pairs:
    with np.load(path, allow_pickle=False) as arrays:
        return Pairs.from_arrays({name: arrays[name] for name in arrays.files})


LAST = 30.0  # seconds that translating needs after the last training


def plan_of(options: argparse.Namespace) -> Plan:
    """The plan of the study for this corpus or number of pairs, with changes."""
    if options.size:
        plan = plans_of_sizes()[options.size]
    else:
        plan = next(unit for unit in units(RealTranslation()) if unit.data == options.corpus).plan()
    changes = json.loads(options.plan)
    tuples = {k: tuple(v) if isinstance(v, list) else v for k, v in changes.items()}
    return replace(plan, **tuples)


def plans_of_sizes() -> dict[int, Plan]:
    """The plans of `translation_pairs`, by the number of pairs."""
    every = units_of_pairs(TranslationPairs())
    return {unit.pairs: unit.plan() for unit in every if isinstance(unit, TranslateSome)}


def write_line(path: Path, record: dict[str, object]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(record, separators=(",", ":")) + "\n")
        file.flush()


# ------------------------------------------------------------------ one pipeline


def pipeline(options: argparse.Namespace) -> None:
    source, target = options.direction.split("-")
    name = f"{options.direction}-{options.seed}" + (f"-{options.size}" if options.size else "")
    folder = Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    torch.backends.cuda.matmul.allow_tf32 = True
    plan, device = plan_of(options), options.device
    began = time.time()
    kind = WatchedPipeline if options.size else RulesPipeline if options.rules else Pipeline
    work = kind(
        load(Path(options.data)),
        source,
        target,
        options.seed,
        plan,
        device=device,
        recorded=not options.eager,
        compiled=options.compile,
        kernels=options.kernels,
        other=load(other)
        if (other := Path(options.data).with_name("other.npz")).exists()
        else None,
        say=lambda text: log(name, text),
    )
    log(name, "pairs:", len(work.sources))
    about = {"plan": vars_of(plan), "device": describe(device), "torch": torch.__version__}
    head = {"phase": "begin", "direction": options.direction, "seed": options.seed}
    sizes = {"pairs": len(work.sources), "vocab_size": work.pairs.vocab_size}
    write_line(folder / f"{name}.jsonl", head | about | sizes)
    phases = work.phases_of_pairs() if isinstance(work, WatchedPipeline) else work.phases()
    if isinstance(work, RulesPipeline):
        phases = [*phases, ("rules", work.rules)]
        write_line(folder / f"{name}.rules.jsonl", head | about | sizes)
    for phase, run in phases:
        left = options.deadline - time.time()
        file = folder / f"{name}{'.rules' if phase == 'rules' else ''}.jsonl"
        if options.size and phase == "padir":  # rows say how many steps were done
            steps, seconds = plan.padir
            work.plan = replace(plan, padir=(steps, max(5.0, min(seconds, left - LAST))))
        if left < 5 or (phase.startswith("ablation") and left < options.ablation_needs):
            log(name, phase, f"left out: {left:.0f} s are left")
            write_line(file, {"phase": phase, "left_out": True})
            continue
        started = time.time()
        try:
            try:
                found = run()
            except Exception as error:
                if not (work.recorded or work.compiled or work.kernels == "short"):
                    raise
                log(name, phase, "again, as it is written:", repr(error)[:500])
                work.recorded, work.compiled, work.kernels = False, False, "torch"
                found = run()
        except Exception as error:
            log(name, phase, "FAILED", repr(error)[:500])
            write_line(file, {"phase": phase, "failed": repr(error)[:2000]})
            if phase in ("teacher", "distil", "student", "padir"):
                raise
            continue
        record = {"phase": phase, "seconds": time.time() - started, "found": found}
        write_line(file, record)
        log(name, phase, f"done in {time.time() - started:.0f} s, {time.time() - began:.0f} in all")
        if phase in ("student", "padir") and not options.no_weights:
            keep(folder / f"weights-{name}-{phase}.pt.npz", work.nets[phase])


def vars_of(plan: Plan) -> dict[str, object]:
    return {name: getattr(plan, name) for name in plan.__dataclass_fields__}


def describe(device: str) -> str:
    if device.startswith("cuda"):
        return torch.cuda.get_device_name()
    return f"cpu, {torch.get_num_threads()} threads"


def keep(path: Path, net: EncoderDecoder) -> None:
    """The weights as float16 arrays, and the shape."""
    shape = {k: v for k, v in vars(net.shape).items() if k != "_"}
    arrays = {name: p.detach().cpu().half().numpy() for name, p in net.state_dict().items()}
    with replacing(path) as part, part.open("wb") as out:
        np.savez(out, shape=np.array(json.dumps(shape)), **arrays)


def kept(path: Path, device: str) -> EncoderDecoder:
    with np.load(path, allow_pickle=False) as arrays:
        shape = PairShape(**json.loads(str(arrays["shape"])))
        net = EncoderDecoder(shape, seed=0)
        names = [name for name in arrays.files if name != "shape"]
        net.load_state_dict({name: torch.tensor(arrays[name]).float() for name in names})
    return net.to(device).eval()


# ------------------------------------------------------------------ latency


def latency(options: argparse.Namespace) -> None:
    source = options.direction.split("-")[0]
    folder, device = Path(options.out), options.device
    if device == "cpu":
        torch.set_num_threads(options.threads)
    sides = load(Path(options.data)).sides
    name = next(name for name in ("test", "test_2016_flickr") if f"{name}.{source}" in sides)
    sources = [s[:48] for s in sides[f"{name}.{source}"]]
    systems: list[tuple[str, str, Refinement | int]] = [
        ("padir", "T=4", Refinement(4)),
        ("student", "beam 1", 1),
        ("padir", "T=10", Refinement(10)),
        ("student", "beam 5", 5),
    ]
    nets = {
        model: kept(folder / f"weights-{options.direction}-{options.seed}-{model}.pt.npz", device)
        for model in ("padir", "student")
    }
    timed = [(nets[model], setting) for model, _, setting in systems]
    every = latencies(timed, sources, options.seed, limit=options.limit)
    for (model, how, _), found in zip(systems, every, strict=True):
        record = {
            "phase": "latency",
            "direction": options.direction,
            "seed": options.seed,
            "device": describe(device),
            "model": model,
            "how": how,
            **found,
        }
        write_line(folder / f"latency-{options.direction}-{device}.jsonl", record)
        middle = sorted(found["seconds"])[len(found["seconds"]) // 2]
        number = len(found["seconds"])
        log("latency", options.direction, device, model, how, f"{1000 * middle:.1f} ms,", number)


# ------------------------------------------------------------------ everything


def probe(options: argparse.Namespace) -> None:
    """A few steps of a small network, to see whether steps can be recorded here."""
    words = list(range(5, 60))
    sources = [[words[(i * 7 + j) % 55] for j in range(3 + i % 8)] for i in range(400)]
    sides = {f"{name}.{side}": sources for name in ("train", *SETS) for side in ("en", "de")}
    plan = replace(
        Plan(), width=64, layers=2, feedforward=128, tokens=512, widths=(6, 10), warmup=5
    )
    plan = replace(plan, padir=(60, 60.0), teacher=(60, 60.0))
    work = Pipeline(Pairs(60, sides), "en", "de", 0, plan, device=options.device, recorded=True)
    causal = work._train("teacher", sources, sources, plan.teacher)[1]
    parallel = work._train("padir", sources, sources, plan.padir, corruption=Corruption())[1]
    good = causal.recorded and parallel.recorded
    falls = parallel.losses[-1] < parallel.losses[0] and causal.losses[-1] < causal.losses[0]
    log("probe:", "recorded" if good and falls else "eager", causal.why_not, parallel.why_not)


WAYS = ("compiled short", "compiled", "short", "plain")


def check(options: argparse.Namespace) -> None:
    """Attention of short sentences against torch's in float64: outputs and gradients."""
    worst = 0.0
    for number, (t, s, masked, causal) in enumerate(
        [(12, 12, True, False), (13, 13, False, True), (26, 20, True, False), (47, 47, True, False)]
    ):
        draws = torch.Generator(options.device).manual_seed(number)

        def drawn(length: int, draws: torch.Generator = draws) -> torch.Tensor:
            values = torch.randn(300, length, 8, 32, device=options.device, generator=draws)
            return values.bfloat16().transpose(1, 2).requires_grad_()

        inputs, gradient = [drawn(t), drawn(s), drawn(s)], drawn(t).detach()
        lengths = torch.randint(1, s + 1, (300, 1), device=options.device, generator=draws)
        shown = (torch.arange(s, device=options.device) < lengths)[:, None, None]
        found = []
        for kernels, dtype in (("short", torch.bfloat16), ("torch", torch.float64)):
            own = [each.detach().to(dtype).requires_grad_() for each in inputs]
            out = attend(*own, shown if masked else None, causal=causal, kernels=kernels)
            back = torch.autograd.grad(out, own, gradient.to(dtype))
            found.append([out.detach().double(), *(each.double() for each in back)])
        for mine, exact in zip(*found, strict=True):
            worst = max(worst, float((mine - exact).norm() / exact.norm()))
    log(f"check: largest relative distance {worst:.2e}", "good" if worst < 1e-2 else "WRONG")
    if not worst < 1e-2:
        sys.exit(1)


def speed(options: argparse.Namespace) -> None:
    """Milliseconds of a recorded step of refinement, each way that it can be computed."""
    plan = plan_of(options)
    pairs = load(Path(options.data))
    times: dict[str, float] = {}
    for way in options.ways.split(","):
        compiled, kernels = "compiled" in way, "short" if "short" in way else "torch"
        work = Pipeline(
            pairs,
            *options.direction.split("-"),
            options.seed,
            plan,
            device=options.device,
            recorded=True,
            compiled=compiled,
            kernels=kernels,
        )
        clock: dict[int, float] = {}

        def look(steps: int, _: float, clock: dict[int, float] = clock) -> None:
            clock[steps] = time.perf_counter()

        began = time.perf_counter()
        try:
            _, history = work._train(
                "speed",
                work.sources,
                work.targets,
                (options.steps, 1e6),
                corruption=Corruption(),
                report=look,
                refit_lengths=False,
            )
        except Exception as error:
            log("speed:", way, "FAILED", repr(error)[:300])
            continue
        last, half = max(clock), min(clock, key=lambda each: abs(each - max(clock) / 2))
        times[way] = 1000 * (clock[last] - clock[half]) / max(1, last - half)
        why = "" if history.recorded else f"not recorded: {history.why_not}; "
        log(
            f"speed: {way}: {times[way]:.2f} ms a step, {why}loss {history.losses[0]:.2f} to "
            f"{history.losses[-1]:.2f}, {time.perf_counter() - began:.0f} s with its beginning"
        )
    if times:
        log("fastest:", min(times, key=lambda way: times[way]))


def fastest(options: argparse.Namespace, environment: dict[str, str]) -> list[str]:
    """The flags of the fastest way."""
    command = [sys.executable, __file__, "speed", "--data", options.data]
    command += ["--device", options.device, "--corpus", options.corpus, "--ways", options.ways]
    command += ["--plan", options.plan]
    try:
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, text=True, timeout=options.choosing
        )
        said = done.stdout
    except subprocess.TimeoutExpired as error:
        said = error.stdout.decode() if error.stdout else ""
    log(said.strip())
    found = [line.split("speed: ")[1].split(": ") for line in said.splitlines() if " ms a" in line]
    best = min(found, key=lambda each: float(each[1].split()[0]), default=["plain"])[0]
    flags = ["--compile"] if "compiled" in best else []
    return [*flags, "--kernels", "short" if "short" in best else "torch"]


def start_mps() -> dict[str, str]:
    """Kernels of several processes at once; without it they take turns."""
    environment = dict(os.environ)
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None:
        return environment
    environment["CUDA_MPS_PIPE_DIRECTORY"] = "/tmp/translate-mps"
    environment["CUDA_MPS_LOG_DIRECTORY"] = "/tmp/translate-mps-log"
    for name in ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"):
        Path(environment[name]).mkdir(parents=True, exist_ok=True)
    if (Path(environment["CUDA_MPS_PIPE_DIRECTORY"]) / "control").exists():
        return environment  # another call has started it
    done = subprocess.run([control, "-d"], env=environment, capture_output=True, text=True)
    log("mps:", done.returncode, done.stdout.strip(), done.stderr.strip())
    return environment if done.returncode == 0 else dict(os.environ)


def run_probe(options: argparse.Namespace, environment: dict[str, str]) -> str:
    try:
        done = subprocess.run(
            [sys.executable, __file__, "probe", "--device", options.device],
            env=environment,
            capture_output=True,
            text=True,
            timeout=90,
        )
    except subprocess.TimeoutExpired:
        return "failed"
    log("probe says:", done.stdout.strip()[-300:], done.stderr.strip()[-600:])
    if done.returncode != 0:
        return "failed"
    return "recorded" if "probe: recorded" in done.stdout else "eager"


def everything(options: argparse.Namespace) -> None:
    folder = Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    began = time.time()
    environment = start_mps() if options.device == "cuda" and not options.no_mps else os.environ
    environment = dict(environment) | {"OMP_NUM_THREADS": "3", "PYTHONUNBUFFERED": "1"}
    mode = "eager" if options.eager else "recorded"
    if not (options.eager or options.no_probe):
        mode = run_probe(options, environment)
    if mode == "failed" and "CUDA_MPS_PIPE_DIRECTORY" in environment:
        log("without mps")
        for name in ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"):
            environment.pop(name, None)
        mode = run_probe(options, environment)
    if mode == "failed":
        mode = "eager"
    deadline = began + options.seconds
    log("mode:", mode)
    shared = ["--data", options.data, "--out", options.out, "--device", options.device]
    shared_work = [*shared, "--plan", options.plan, "--corpus", options.corpus]
    shared_work += ["--deadline", str(deadline)]
    shared_work += ["--ablation-needs", str(options.ablation_needs)]
    shared_work += ["--rules"] if options.rules else []
    shared_work += ["--no-weights"] if options.no_weights else []
    if mode == "eager":
        shared_work.append("--eager")
    if options.choosing:
        shared_work += fastest(options, environment)
    else:
        shared_work += ["--compile"] if options.compile else []
        shared_work += ["--kernels", options.kernels]
    me = [sys.executable, __file__]
    work = []
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        for direction in options.directions.split(","):
            own = ["--direction", direction, "--seed", str(seed)]
            work.append(subprocess.Popen([*me, "pipeline", *own, *shared_work], env=environment))
    for process in work:
        try:
            process.wait(timeout=max(1.0, deadline + 25 - time.time()))
        except subprocess.TimeoutExpired:
            log("a pipeline is stopped at its deadline")
            process.terminate()
    log(f"pipelines over after {time.time() - began:.0f} s")
    timing = []
    for direction in options.directions.split(",") if options.limit > 0 else ():
        for device in dict.fromkeys((options.device, "cpu")):
            command = [*me, "latency", "--direction", direction]
            command += ["--seed", str(options.first_seed)]
            command += ["--data", options.data, "--out", options.out, "--device", device]
            command += ["--limit", str(options.limit), "--threads", "3"]
            timing.append(subprocess.Popen(command, env=environment))
    for process in timing:
        process.wait()
    collect(folder, options)
    write_text(folder / "DONE", "done\n")
    log(f"DONE after {time.time() - began:.0f} s")


def by_pairs(options: argparse.Namespace) -> None:
    """Every number of pairs side by side, the largest first; seed after seed is another call."""
    folder = Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    began = time.time()
    environment = start_mps() if options.device == "cuda" and not options.no_mps else os.environ
    environment = dict(environment) | {"OMP_NUM_THREADS": "2", "PYTHONUNBUFFERED": "1"}
    deadline = began + options.seconds
    sizes = [int(size) for size in options.sizes.split(",")] if options.sizes else plans_of_sizes()
    command = [sys.executable, __file__, "pipeline", "--data", options.data, "--out", options.out]
    command += ["--device", options.device, "--plan", options.plan, "--no-weights"]
    command += ["--kernels", options.kernels, "--deadline", str(deadline)]
    command += ["--compile"] if options.compile else []
    command += ["--eager"] if options.eager else []
    work = []
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        for size in sorted(sizes, reverse=True):
            for direction in options.directions.split(","):
                own = ["--direction", direction, "--seed", str(seed), "--size", str(size)]
                work.append(subprocess.Popen([*command, *own], env=environment))
    for process in work:
        try:
            process.wait(timeout=max(1.0, deadline + 25 - time.time()))
        except subprocess.TimeoutExpired:
            log("a pipeline is stopped at its deadline")
            process.terminate()
    write_text(folder / "DONE", "done\n")
    log(f"DONE after {time.time() - began:.0f} s")


def collect(folder: Path, options: argparse.Namespace) -> None:
    """Eight files that travel: four results, the latencies, and weights in three parts."""
    back = folder / "back"
    back.mkdir(exist_ok=True)
    for path in folder.glob("*-*-[0-9].jsonl"):
        write_bytes(back / path.name, path.read_bytes())
    lines = [path.read_text() for path in sorted(folder.glob("latency-*.jsonl"))]
    write_text(back / "latency.jsonl", "".join(lines))
    direction = options.directions.split(",")[0]
    first = f"{direction}-{options.first_seed}"
    paths = [folder / f"weights-{first}-{name}.pt.npz" for name in ("student", "padir")]
    if all(path.exists() for path in paths):
        data = b"".join(len(p.read_bytes()).to_bytes(8, "big") + p.read_bytes() for p in paths)
        for number, first in enumerate(range(0, len(data), PART)):
            write_bytes(back / f"weights-{direction}.part{number}", data[first : first + PART])


def split(options: argparse.Namespace) -> None:
    """Aligned files of train, val and test from a table of pairs with their origins."""
    with lzma.open(options.other, "rt", encoding="utf-8") as file:
        found = split_by_origin(AlignedPair(*line.rstrip("\n").split("\t")[:3]) for line in file)
    folder = Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    for name, pairs in found.items():
        for side, texts in (("en", [p.source for p in pairs]), ("de", [p.target for p in pairs])):
            content = "".join(f"{text}\n" for text in texts).encode()
            write_bytes(folder / f"{name}.{side}.gz", gzip.compress(content))
        log(name, len(pairs), "pairs of", len({pair.origin for pair in pairs}), "origins")


def prepare(options: argparse.Namespace) -> None:
    from triptych.models.vocabulary import Vocabulary

    pairs = Path(options.pairs)
    names = [name for name in ("train", *SETS) if list(pairs.glob(f"{name}.en*"))]
    texts = {
        f"{name}.{side}": read_lines(pairs, f"{name}.{side}")
        for name in names
        for side in ("en", "de")
    }
    folder = Path(options.out).parent
    folder.mkdir(parents=True, exist_ok=True)
    learned = {"": [*texts["train.en"], *texts["train.de"]]}
    if options.other:  # text of another kind, for a vocabulary that is not the pairs' own
        with lzma.open(options.other, "rt", encoding="utf-8") as file:
            rows = [line.rstrip("\n").split("\t")[:2] for line in file]
        learned["other"] = [text for row in rows[:: max(1, len(rows) // 60_000)] for text in row]
    for name, lines_ in learned.items():
        vocabulary = Vocabulary.learn(lines_, options.vocabulary)
        vocabulary.save(folder / f"vocabulary{'-' if name else ''}{name}.json")
        sides = {side: vocabulary.encode(text) for side, text in texts.items()}
        out = folder / "other.npz" if name else Path(options.out)
        with replacing(out) as part, part.open("wb") as opened:
            np.savez_compressed(opened, **Pairs(vocabulary.size, sides).as_arrays())
        log(out, out.stat().st_size, "bytes", vocabulary.size, "pieces")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "what",
        choices=(
            *("all", "pipeline", "pairs", "latency", "split", "prepare"),
            *("probe", "speed", "check", "collect"),
        ),
    )
    parser.add_argument("--data", default="device-data/multi30k.npz")
    parser.add_argument("--out", default="/tmp/translate")
    parser.add_argument("--corpus", choices=("multi30k", *LARGER), default="multi30k")
    parser.add_argument("--pairs")
    parser.add_argument("--other")
    parser.add_argument("--vocabulary", type=int, default=8000)
    parser.add_argument("--direction", default="en-de")
    parser.add_argument("--directions", default=",".join(DIRECTIONS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--plan", default="{}")
    parser.add_argument("--rules", action="store_true", help="other rules for repeated tokens too")
    parser.add_argument("--no-weights", action="store_true", help="weights are not kept")
    parser.add_argument("--size", type=int, default=0, help="pairs, of translation_pairs")
    parser.add_argument("--sizes", default="", help="of `pairs`; all of the study without")
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--kernels", choices=("torch", "short"), default="torch")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--choosing", type=float, default=0.0, help="seconds to choose by `speed`")
    parser.add_argument("--no-mps", action="store_true")
    parser.add_argument("--no-probe", action="store_true", help="steps can be recorded here")
    parser.add_argument("--seconds", type=float, default=700.0)
    parser.add_argument("--deadline", type=float, default=float("inf"))
    parser.add_argument("--ablation-needs", type=float, default=75.0)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds of latencies; 0: none")
    parser.add_argument("--threads", type=int, default=3)
    options = parser.parse_args()
    {
        "all": everything,
        "pipeline": pipeline,
        "pairs": by_pairs,
        "latency": latency,
        "split": split,
        "prepare": prepare,
        "probe": probe,
        "speed": speed,
        "check": check,
        "collect": lambda given: collect(Path(given.out), given),
    }[options.what](options)


if __name__ == "__main__":
    main()
