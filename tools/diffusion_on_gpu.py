"""Train diffusion language models of text on a machine that has torch and no network.

    python tools/diffusion_on_gpu.py prepare --wikitext FOLDER --captions FOLDER
    python tools/diffusion_on_gpu.py all --models masked,causal --out /tmp/diffusion --back $OUT

`prepare` runs where texts and the package tokenizers are. It learns a vocabulary of bytes and their
pieces and writes tokens into device-data/diffusion: WikiText-2, sources of the standard library,
captions of images, records in JSON about functions of the standard library; and these records once
more as rows of characters.
`all` trains models side by side, writes rows and weights, and puts what travels into `--back`.

    masked    masks at any rate               uniform   uniform noise
    causal    from left to right, a control   block     blocks of 16 in turn, masks inside
    json      masks at any rate, on records as rows of characters (small)
"""

import argparse
import ast
import gzip
import hashlib
import json
import os
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from triptych.core.estimates import mean
from triptych.core.files import write_bytes, write_text
from triptych.core.randomness import TorchRng
from triptych.models.language_models import CausalLM, MaskedLM
from triptych.models.layers import Shape
from triptych.models.noised import LEVELS, NoisedLM
from triptych.models.saved import save_lm
from triptych.models.transformer import Transformer
from triptych.training.bounds import masked_bounds, noised_bounds
from triptych.training.corpus import Corpus
from triptych.training.loop import loss_of_answers, trained_parameters
from triptych.training.noise import any_rate, uniform_noise
from triptych.training.objectives import Objective, Prediction, next_token
from triptych.training.step import Descent, Recipe, descend

WORDS = 8191  # with the mask a power of two
LENGTH = 256
CHARACTERS = 128  # positions of a record
BLOCK = 16
PAD, END = 0, 3  # of Vocabulary's special pieces
PART = 15 * 2**20
DOMAINS = ("wikitext", "python", "captions", "json")
SIZES = {"large": (512, 8, 8), "small": (192, 6, 4), "tiny": (32, 1, 2)}  # width, layers, heads
SHARES = {"wikitext": 0.45, "python": 0.35, "captions": 0.05, "json": 0.15}


def log(*said: object) -> None:
    print(time.strftime("%H:%M:%S"), *said, flush=True)


# ---------------------------------------------------------------------- texts


def articles(text: str) -> list[str]:
    """WikiText's articles: each begins with a line ` = Title = `."""
    found: list[list[str]] = []
    for line in text.splitlines(keepends=True):
        heading = line.startswith(" = ") and not line.startswith(" = = ")
        if heading or not found:
            found.append([])
        found[-1].append(line)
    return ["".join(lines) for lines in found]


def sources() -> Iterator[tuple[str, str]]:
    """Names and texts of the standard library's modules, without its tests."""
    folder = Path(sysconfig.get_path("stdlib"))
    left_out = {"site-packages", "test", "tests", "idlelib", "lib2to3", "turtledemo", "__pycache__"}
    for path in sorted(folder.rglob("*.py")):
        name = path.relative_to(folder)
        if left_out.isdisjoint(name.parts):
            try:
                yield str(name), path.read_text("utf-8")
            except UnicodeDecodeError:
                continue


def records(text: str) -> list[str]:
    """A line of JSON about each function and class of a module."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            continue
        record: dict[str, Any] = {"name": node.name, "kind": "class", "line": node.lineno}
        if isinstance(node, ast.FunctionDef):
            given = [argument.arg for argument in node.args.args]
            kind = "method" if given[:1] in (["self"], ["cls"]) else "function"
            record |= {"kind": kind, "args": given}
        found.append(json.dumps(record | {"doc": ast.get_docstring(node) is not None}))
    return found


def part_of(name: str) -> str:
    """Which part of the texts a module belongs to, by its name."""
    number = int(hashlib.sha256(name.encode()).hexdigest(), 16) % 20
    return {0: "valid", 1: "test"}.get(number, "train")


def texts_of(options: argparse.Namespace) -> dict[str, dict[str, list[str]]]:
    """texts[domain][part]."""
    found: dict[str, dict[str, list[str]]] = {name: {} for name in DOMAINS}
    for part in ("train", "valid", "test"):
        text = (Path(options.wikitext) / f"{part}.txt").read_text("utf-8")
        found["wikitext"][part] = articles(text)
        for name in ("python", "json"):
            found[name][part] = []
    for part, name in (("train", "train"), ("valid", "val"), ("test", "test_2016_flickr")):
        lines = gzip.decompress((Path(options.captions) / f"{name}.en.gz").read_bytes())
        found["captions"][part] = [f"{line}\n" for line in lines.decode().splitlines()]
    for name, text in sources():
        part = part_of(name)
        found["python"][part].append(text)
        found["json"][part] += [f"{record}\n" for record in records(text)]
    for part in ("train", "valid", "test"):
        found["json"][part] = list(dict.fromkeys(found["json"][part]))
    return found


def prepare(options: argparse.Namespace) -> None:
    from triptych.models.vocabulary import Vocabulary

    texts = texts_of(options)
    learned = [text for name in DOMAINS for text in texts[name]["train"]]
    vocabulary = Vocabulary.learn(learned, WORDS, lossless=True)
    folder = Path(options.data)
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary.save(folder / "vocabulary.json")
    sizes = [piece_bytes(piece) for piece in vocabulary.pieces(range(vocabulary.size))]
    arrays: dict[str, np.ndarray] = {"bytes": np.array(sizes, dtype=np.uint8)}
    facts: dict[str, Any] = {"words": vocabulary.size, "digest": vocabulary.digest}
    for name in DOMAINS:
        for part, documents in texts[name].items():
            rows = as_rows(vocabulary.encode(documents), whole=name == "json")
            arrays[f"{name}.{part}"] = rows
            together = "".join(documents)
            size, words = len(together.encode()), len(together.split()) + together.count("\n")
            facts[f"{name}.{part}"] = {"rows": len(rows), "bytes": size, "words": words}
            log(name, part, len(documents), "texts", rows.shape, size, "bytes")
    for part, documents in texts["json"].items():
        arrays[f"characters.{part}"] = as_characters(documents)
    write_text(folder / "facts.json", json.dumps(facts, indent=1))
    with (folder / "tokens.npz").open("wb") as file:
        np.savez_compressed(file, **arrays)  # pyright: ignore[reportArgumentType]
    log("written:", sum(path.stat().st_size for path in folder.iterdir()), "bytes")


def piece_bytes(piece: str) -> int:
    """Bytes of the text that a piece stands for: one for each of its signs, none if special."""
    return 0 if piece in ("<pad>", "<unk>", "<s>", "</s>", "<mask>") else len(piece)


def as_rows(documents: list[list[int]], *, whole: bool) -> np.ndarray:
    """Rows of LENGTH tokens: documents in a chain, each with its end; or whole ones and padding."""
    if not whole:
        chain = [token for document in documents for token in (*document, END)]
        count = len(chain) // LENGTH
        return np.array(chain[: count * LENGTH], dtype=np.uint16).reshape(count, LENGTH)
    rows: list[list[int]] = [[]]
    for document in documents:
        if len(document) + 1 > LENGTH:
            continue
        if len(rows[-1]) + len(document) + 1 > LENGTH:
            rows.append([])
        rows[-1] += [*document, END]
    return np.array([row + [PAD] * (LENGTH - len(row)) for row in rows], dtype=np.uint16)


def as_characters(documents: list[str]) -> np.ndarray:
    """A row of characters for each record that fits: 0 for padding, 1 for its end, then ASCII."""
    rows = []
    for text in documents:
        line = text.rstrip("\n")
        if line.isascii() and line.isprintable() and len(line) < CHARACTERS:
            codes = [*(ord(sign) - 30 for sign in line), 1]
            rows.append(codes + [0] * (CHARACTERS - len(codes)))
    return np.array(rows, dtype=np.uint8)


# ---------------------------------------------------------------------- training


class Texts:
    """What `prepare` wrote, on a device."""

    def __init__(self, folder: Path, device: str) -> None:
        with np.load(folder / "tokens.npz") as held:
            self.arrays = {name: torch.from_numpy(held[name].astype(np.int32)) for name in held}
        self.facts = json.loads((folder / "facts.json").read_text())
        self.device = device

    def rows(self, name: str, most: int | None = None) -> Tensor:
        """Rows of a part, evenly spread over it where there are more than `most`."""
        rows = self.arrays[name]
        if most is not None and len(rows) > most:
            rows = rows[torch.linspace(0, len(rows) - 1, most).long()]
        return rows.long().to(self.device)

    def sampler(self) -> Callable[[int, TorchRng], Tensor]:
        """Rows of all domains, each domain with its share."""
        parts = [Corpus(self.arrays[f"{name}.train"].to(self.device)) for name in DOMAINS]

        def sample(n: int, rng: TorchRng) -> Tensor:
            counts = [round(n * SHARES[name]) for name in DOMAINS]
            counts[0] += n - sum(counts)
            return torch.cat([c.sample(k, rng) for c, k in zip(parts, counts, strict=True)])

        return sample


def model_of(kind: str, words: int, length: int, size: str, seed: int, device: str) -> Any:
    width, layers, heads = SIZES[size]
    extra = LEVELS if kind == "uniform" else 1
    shape = Shape(
        words + extra,
        length + (kind == "uniform"),
        width=width,
        layers=layers,
        heads=heads,
        causal=kind == "causal",
        positions="rotary",
        tied=True,
    )
    net = Transformer(shape, seed=seed, device=device)
    return {"uniform": NoisedLM, "causal": CausalLM}.get(kind, MaskedLM)(net)


def objective_of(kind: str, words: int) -> Objective:
    if kind == "uniform":
        return uniform_noise(words=words)
    if kind == "causal":
        return next_token()
    return any_rate(words=words, block=BLOCK if kind == "block" else None)


def nats_of(kind: str, lm: Any, rows: Tensor, draws: int, batch: int) -> Tensor:
    """The bound of every row; without noise for a causal model, where it is -log p."""
    found = []
    for part in rows.split(batch):
        if kind == "causal":
            logits = lm.token_logits(part).float()
            each = logits.log_softmax(-1).gather(-1, part[..., None])[..., 0]
            found.append(-each.double().sum(1))
        elif kind == "uniform":
            found.append(noised_bounds(lm, part, TorchRng(7, rows.device), draws=draws))
        else:
            block = BLOCK if kind == "block" else None
            rng = TorchRng(7, rows.device)
            found.append(masked_bounds(lm, part, rng, draws=draws, block=block))
    return torch.cat(found)


@torch.no_grad()
def measured(
    kind: str, lm: Any, texts: Texts, name: str, *, draws: int, batch: int, most: int | None
) -> dict[str, Any]:
    """Bits of a part per token and per byte, each with its interval over rows."""
    rows = texts.rows(name, most)
    if name.startswith("characters"):
        sizes = (rows > 1).sum(1).double()
        tokens = ((rows > 0).sum(1)).double()
    else:
        sizes = texts.arrays["bytes"].to(rows.device)[rows].sum(1).double()
        tokens = (rows != PAD).sum(1).double()
    bits = nats_of(kind, lm, rows, draws, batch) / np.log(2)
    row: dict[str, Any] = {"part": name, "rows": len(rows), "draws": draws}
    for per, counts in (("token", tokens), ("byte", sizes)):
        ratio = float(bits.sum() / counts.sum())
        around = mean(((bits - ratio * counts) / counts.mean()).tolist())
        row[f"bits_per_{per}"] = ratio
        row[f"bits_per_{per}_half_width"] = around.half_width
    row["bytes"], row["tokens"] = int(sizes.sum()), int(tokens.sum())
    return row


def train(options: argparse.Namespace) -> None:
    began, device, kind = time.time(), options.device, options.kind
    torch.set_float32_matmul_precision("high")
    texts = Texts(Path(options.data), device)
    characters = kind == "json"
    words = 97 if characters else texts.facts["words"]
    length = CHARACTERS if characters else LENGTH
    size = options.size or ("small" if characters else "large")
    lm = model_of(kind, words, length, size, options.seed, device)
    parameters = sum(p.numel() for p in lm.net.parameters())
    sample = Corpus(texts.arrays["characters.train"].to(device)).sample
    sample = sample if characters else texts.sampler()
    objective = objective_of(kind, words)
    half = device == "cuda"
    recipe = Recipe(
        10**6,
        batch=options.batch,
        learning_rate=options.rate,
        betas=(0.9, 0.98),
        weight_decay=0.02 if kind != "causal" else 0.1,
        warmup=min(200, options.steps or 200),
        decay="cosine",
        clip=1.0,
        autocast="bfloat16" if half else "none",
    )
    descent = Descent(recipe, trained_parameters(lm.net))
    rng = TorchRng(options.seed, device)

    def answer(prediction: Prediction) -> Tensor:
        return loss_of_answers(lm, prediction, recipe)

    compiled = as_compiled(answer, objective(sample(recipe.batch, rng), rng), options.compile)
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    name = f"{kind}-{options.seed}"
    lines: list[dict[str, Any]] = []

    def keep(**row: Any) -> None:
        line = {"model": kind, "seed": options.seed, "parameters": parameters, **row}
        lines.append(line | {"seconds": round(time.time() - began, 1)})
        text = "".join(f"{json.dumps(line)}\n" for line in lines)
        for folder in (out, Path(options.back or out)):
            write_text(folder / f"{name}.jsonl", text)

    def at(number: int) -> Tensor:
        drawn = objective(sample(recipe.batch, rng), rng)
        return compiled(drawn)

    domains = ["characters"] if characters else list(DOMAINS)
    best: tuple[float, dict[str, Tensor]] = (float("inf"), {})
    few = min(200, options.most or 200)

    def look(done: int) -> None:
        """The validation bound of the first domain now; the best weights are kept."""
        nonlocal best
        lm.net.eval()
        how = {"draws": 4, "batch": options.batch, "most": few}
        with torch.autocast(device, torch.bfloat16, enabled=half):
            row = measured(kind, lm, texts, f"{domains[0]}.valid", **how)
        lm.net.train()
        keep(step=done, kind="look", loss=descent.losses[-1], **row)
        log(name, done, f"loss {descent.losses[-1]:.3f}", f"{row['bits_per_byte']:.3f} bits a byte")
        if row["bits_per_byte"] < best[0]:
            weights = {k: v.detach().clone() for k, v in lm.net.state_dict().items()}
            best = (row["bits_per_byte"], weights)

    lm.net.train()
    end = began + options.seconds - options.reserve
    marks = [0.25, 0.5, 0.65, 0.8, 0.9]
    done, total, each = 0, options.steps or 10**6, 0.0
    descent.recipe = replace(recipe, steps=total)
    while done < total and (options.steps or time.time() < end):
        clock, until = time.time(), min(total, done + 20)
        descend(descent, at, first=done, last=until)
        seconds, done = (time.time() - clock) / (until - done), until
        if not options.steps:  # as many as fit, by the time of those before
            each = 0.7 * each + 0.3 * seconds if each else seconds
            total = done + max(0, int((end - time.time()) / each))
            descent.recipe = replace(recipe, steps=max(total, done + 1))
        if marks and done >= marks[0] * total:
            log(name, f"{parameters:,} parameters, {1000 * each:.1f} ms a step, {total} steps")
            marks.pop(0)
            look(done)
    look(done)
    lm.net.load_state_dict(best[1])
    lm.net.eval()
    halved = {k: v.bfloat16().float() for k, v in lm.net.state_dict().items()}
    lm.net.load_state_dict(halved)  # what travels is what is measured
    path = out / f"{name}.safetensors"
    about = {"objective": kind, "steps": done, "digest": texts.facts["digest"]}
    save_lm(path, lm, dtype=torch.bfloat16, **about)
    if options.back and not options.no_weights:
        parts(path, Path(options.back))
    keep(
        kind="trained",
        steps=done,
        step_seconds=each,
        tokens=done * recipe.batch * length,
        train_tokens=sum(texts.arrays[f"{d}.train"].numel() for d in domains),
        batch=recipe.batch,
        loss=descent.losses[-1],
        losses=[round(value, 4) for value in descent.losses[:: max(1, done // 100)]],
    )
    for domain in domains:
        for part in ("valid", "test"):
            most = None if options.most <= 0 else options.most
            row = measured(
                kind,
                lm,
                texts,
                f"{domain}.{part}",
                draws=options.draws,
                batch=options.batch,
                most=most,
            )
            keep(kind="bound", **row)
            log(
                name,
                row["part"],
                f"{row['bits_per_byte']:.4f} ± {row['bits_per_byte_half_width']:.4f}",
            )
    keep(kind="done")
    log(name, f"done after {time.time() - began:.0f} s")


def as_compiled(
    answer: Callable[[Prediction], Tensor], drawn: Prediction, wanted: bool
) -> Callable[[Prediction], Tensor]:
    """The loss, compiled if that is wanted and works here; gradients of this call are dropped."""
    if not wanted:
        return answer
    compiled = torch.compile(answer)
    try:
        compiled(drawn).backward()
    except Exception as error:
        log("not compiled:", repr(error)[:300])
        return answer
    return compiled


def parts(path: Path, folder: Path) -> None:
    """A file in parts that travel; `cat` puts them together."""
    data = path.read_bytes()
    count = -(-len(data) // PART)
    for number, first in enumerate(range(0, len(data), PART)):
        name = path.name if count == 1 else f"{path.name}.part{number}"
        write_bytes(folder / name, data[first : first + PART])
    log(path.name, len(data), "bytes in", count, "parts, sha256", hashlib.sha256(data).hexdigest())


def everything(options: argparse.Namespace) -> None:
    began = time.time()
    environment = dict(os.environ) | {"OMP_NUM_THREADS": "3", "PYTHONUNBUFFERED": "1"}
    if options.device == "cuda" and not options.no_mps:
        environment |= mps()
    work = []
    for kind in options.models.split(","):
        command = [sys.executable, __file__, "train", "--kind", kind]
        for name in ("data", "out", "back", "device", "seconds", "reserve", "batch", "rate"):
            command += [f"--{name}", str(getattr(options, name))]
        for name in ("draws", "most", "steps", "seed", "size"):
            command += [f"--{name}", str(getattr(options, name))]
        command += ["--compile"] if options.compile else []
        command += ["--no-weights"] if kind in options.leave.split(",") else []
        work.append((kind, subprocess.Popen(command, env=environment)))
    for kind, process in work:
        if code := process.wait():
            log(kind, "FAILED with code", code)
    log(f"DONE after {time.time() - began:.0f} s")


def mps() -> dict[str, str]:
    """Start the service that runs kernels of several processes at once, where there is one."""
    import shutil

    control = shutil.which("nvidia-cuda-mps-control")
    if control is None:
        return {}
    places = {
        "CUDA_MPS_PIPE_DIRECTORY": "/tmp/diffusion-mps",
        "CUDA_MPS_LOG_DIRECTORY": "/tmp/diffusion-mps-log",
    }
    for folder in places.values():
        Path(folder).mkdir(parents=True, exist_ok=True)
    done = subprocess.run([control, "-d"], env=os.environ | places, check=False)
    log("mps:", done.returncode)
    return places if done.returncode == 0 else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("prepare", "train", "all"))
    parser.add_argument("--wikitext", help="a folder with train.txt, valid.txt and test.txt")
    parser.add_argument("--captions", help="a folder with train.en.gz, val.en.gz and so on")
    parser.add_argument("--data", default="device-data/diffusion", help="what `prepare` wrote")
    parser.add_argument("--out", default="/tmp/diffusion")
    parser.add_argument("--back", default="", help="where rows and parts of weights go too")
    parser.add_argument("--models", default="masked,causal")
    parser.add_argument("--leave", default="causal,block", help="models whose weights stay")
    parser.add_argument("--kind", default="masked")
    parser.add_argument("--size", default="", choices=("", *SIZES))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--seconds", type=float, default=330.0, help="of training, and before it")
    parser.add_argument("--reserve", type=float, default=5.0)
    parser.add_argument("--steps", type=int, default=0, help="0: as many as fit")
    parser.add_argument("--draws", type=int, default=16)
    parser.add_argument("--most", type=int, default=0, help="rows of a part; 0: all")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--no-weights", action="store_true")
    parser.add_argument("--no-mps", action="store_true")
    options = parser.parse_args()
    {"prepare": prepare, "train": train, "all": everything}[options.what](options)


if __name__ == "__main__":
    main()
