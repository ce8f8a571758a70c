"""JSON of a schema on a diffusion language model: how much of it is right, at what price and law.

    python -m benchmarks.canvas --train 1000 --save json.safetensors     a small model, on a CPU
    python -m benchmarks.canvas --model json-0.safetensors --draws 100
    python -m benchmarks.canvas --model masked-0.safetensors --vocabulary vocabulary.json

A model of characters has 0 for padding, 1 for the end of a text, and then ASCII less 30; one of
pieces has the vocabulary that was learned with it. `jsonschema` judges every text by itself. For
the algorithms that weigh, the mean weight estimates P(L), pooled over all draws, and

    KL(q || p(x | L))  =  log P(L) - E_q[log weight]

is how far their law is from the model's own, left to right, given the language.
"""

import argparse
import json
import math
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import torch

from triptych.core.estimates import mean
from triptych.core.randomness import TorchRng
from triptych.diffusion.guided.any_order import AnyOrder
from triptych.diffusion.guided.completion import Completion
from triptych.diffusion.guided.remasking import Remasking
from triptych.guidance.canvas_lm import CanvasLM
from triptych.guidance.guide import Guided, guide
from triptych.guidance.languages import automaton_of
from triptych.inference.guided.adaptive import Adaptive
from triptych.models.language_models import MaskedLM
from triptych.models.layers import Shape
from triptych.models.saved import load_lm, save_lm
from triptych.models.transformer import Transformer
from triptych.models.vocabulary import SPECIAL
from triptych.models.vocabulary import Vocabulary as Pieces
from triptych.training.loop import fit
from triptych.training.noise import any_rate
from triptych.training.step import Recipe
from triptych.verifiers.grammars.grammar import Grammar
from triptych.verifiers.grammars.vocabulary import Vocabulary

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "kind": {"enum": ["function", "method", "class"]},
        "line": {"type": "integer", "minimum": 0},
        "args": {"type": "array", "items": {"type": "string"}},
        "doc": {"type": "boolean"},
    },
    "required": ["name", "kind", "line", "doc"],
    "additionalProperties": False,
}
CHARACTERS = Vocabulary([b"", b"", *(bytes([code]) for code in range(32, 127))], (1,))
_NAMES = ("read", "write", "open", "close", "split", "join", "sort", "find", "parse", "format")
_ARGS = ("self", "path", "text", "key", "value", "size", "name", "mode")


def record(draw: random.Random) -> str:
    """A made-up record that fits the schema, for a model that is trained here."""
    kind = draw.choice(["function", "method", "class"])
    made: dict[str, Any] = {"name": "_".join(draw.sample(_NAMES, draw.randint(1, 2)))}
    made |= {"kind": kind, "line": draw.randint(1, 999)}
    if kind != "class":
        made["args"] = draw.sample(_ARGS, draw.randint(0, 2))
    return json.dumps(made | {"doc": draw.random() < 0.5})


def trained(steps: int, length: int = 112) -> MaskedLM:
    """A masked model of characters, of 0.3 million parameters, on made-up records."""
    draw = random.Random(0)
    texts = [text for text in (record(draw) for _ in range(20_000)) if len(text) < length]
    rows = [[ord(sign) - 30 for sign in text] + [1] for text in texts]
    tokens = torch.tensor([row + [0] * (length - len(row)) for row in rows])
    words = len(CHARACTERS)
    shape = Shape(words + 1, length, width=96, layers=3, heads=4, causal=False, positions="rotary")
    lm = MaskedLM(Transformer(shape, seed=0))

    def sample(n: int, rng: Any) -> torch.Tensor:
        return tokens[torch.randint(len(tokens), (n,), generator=rng.generator)]

    recipe = Recipe(
        steps, batch=24, learning_rate=2e-3, betas=(0.9, 0.98), warmup=50, decay="cosine", clip=1.0
    )
    fit(lm, sample, any_rate(words=words), recipe, rng=TorchRng(0))
    return lm


def vocabulary_of(name: str) -> tuple[Vocabulary, Callable[[str], list[int]] | None]:
    """The bytes of the tokens, and how a text is cut into them."""
    if name == "characters":
        return CHARACTERS, lambda text: [ord(sign) - 30 for sign in text]
    pieces = Pieces.load(Path(name))
    written = [
        b"" if piece in SPECIAL else _bytes(pieces, number)
        for number, piece in enumerate(pieces.pieces(range(pieces.size)))
    ]
    end = SPECIAL.index("</s>")
    return Vocabulary(written, (end,)), lambda text: pieces.encode([text])[0]


def _bytes(pieces: Pieces, number: int) -> bytes:
    """What a piece writes; nothing, where it is part of a character."""
    text = pieces.decode([[number]])[0]
    return b"" if "\ufffd" in text else text.encode()


def fits(text: str) -> bool:
    """The schema, by jsonschema."""
    try:
        jsonschema.validate(json.loads(text), SCHEMA)
    except (ValueError, jsonschema.ValidationError):
        return False
    return True


def ways(rounds: int) -> dict[str, tuple[Any, Any]]:
    """A rule and an algorithm by name."""
    grammar = Grammar.from_json_schema(SCHEMA)
    tokenwise = AnyOrder("left to right", Adaptive(n=1))
    return {
        "alone": (grammar, Remasking(steps=rounds, tries=1)),
        "one round": (grammar, Completion()),
        "rounds": (grammar, Completion(steps=rounds)),
        "rounds in a random order": (grammar, Completion(steps=rounds, order="random")),
        "rounds, 4 particles": (grammar, Completion(steps=rounds, n=4)),
        "to a mask": (grammar, Remasking(steps=rounds, tries=20)),
        "a position a round": (grammar, Completion(steps=None)),
        "tokenwise": (grammar, tokenwise),
        "llguidance": (grammar, "tokenwise"),
    }


def run(lm: CanvasLM, asked: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each algorithm."""
    began = time.perf_counter()
    states = automaton_of(Grammar.from_json_schema(SCHEMA), lm.vocabulary)
    print(f"{lm}\n{states}, made in {time.perf_counter() - began:.1f} s", flush=True)
    rows, known = [], ways(asked.rounds)
    for name in asked.ways.split(",") if asked.ways else known:
        rule, algorithm = known[name]
        began = time.perf_counter()
        prompts = [asked.prompt] * asked.draws
        out = guide(
            lm, prompts, rule, algorithm, max_new_tokens=asked.room, rng=0, batch=asked.batch
        )
        seconds = round(time.perf_counter() - began, 1)
        rows.append({"way": name, **summary(out), "seconds": seconds})
        print(json.dumps(rows[-1]), flush=True)
    one_by_one = [row for row in rows if row["way"] in ("tokenwise", "a position a round")]
    if one_by_one:
        every = [w for row in one_by_one for w in row["log_weights"]]
        pooled = torch.tensor(every).logsumexp(0).item() - math.log(len(every))
        print(f"log P(L) under the model from left to right, by {len(every)} draws: {pooled:.3f}")
        for row in one_by_one:
            gap = mean([pooled - w for w in row["log_weights"]])
            print(f"KL of {row['way']}: {gap.value:.3f} [{gap.low:.3f}, {gap.high:.3f}] nats")
    return rows


def summary(out: Guided) -> dict[str, Any]:
    """What is said of the texts of one algorithm."""
    found: dict[str, Any] = {
        "right": sum(fits(text) for text in out.texts),
        "complete": sum(out.complete),
        "texts": len(out.texts),
        "different": len(set(out.texts)),
        "passes": out.totals["forward_passes"],
        "tokens": sum(cost["generated"] for cost in out.costs),
        "example": out.texts[0],
    }
    if out.log_evidence is not None:
        found["log_weights"] = out.log_evidence
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="what `save_lm` wrote")
    parser.add_argument("--vocabulary", default="characters")
    parser.add_argument("--train", type=int, default=0, help="steps of a small model of characters")
    parser.add_argument("--save", type=Path, help="where the trained model goes")
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--prompt", default="", help="what stands before a text")
    parser.add_argument("--room", type=int, default=0, help="tokens of a text; 0: the length")
    parser.add_argument("--reads", type=int, default=0, help="positions shown; 0: the length")
    parser.add_argument("--rounds", type=int, default=16)
    parser.add_argument("--batch", type=int, default=50)
    parser.add_argument("--ways", default="", help="names with commas between; none: all")
    parser.add_argument("--out", type=Path, help="rows as JSON")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.model is None:
        began = time.perf_counter()
        model: Any = trained(asked.train)
        print(f"trained in {time.perf_counter() - began:.0f} s", flush=True)
        if asked.save:
            save_lm(asked.save, model, steps=asked.train)
            return
    else:
        model = load_lm(asked.model)[0]
    vocabulary, encode = vocabulary_of(asked.vocabulary)
    lm = CanvasLM(model, vocabulary, encode=encode, reads=asked.reads or model.length)
    asked.room = asked.room or model.length
    rows = run(lm, asked)
    if asked.out:
        asked.out.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
