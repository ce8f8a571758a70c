"""Grammar engines: microseconds of a mask and of a question, against our own rule; and texts.

    python -m benchmarks.grammars [--model NAME] [--prompts N]

The vocabulary is that of the model, SmolLM2-135M where it was fetched, and 50,000 made-up words
without. Texts: JSON of a schema by masked draws of one model, ours against the logits processor of
xgrammar in transformers' `generate`. All times are processor time on one thread.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from triptych.core.protocols import Question
from triptych.core.randomness import TorchRng
from triptych.inference.guided import tokenwise
from triptych.models.pretrained.causal import PretrainedCausalLM
from triptych.models.pretrained.fetching import cached
from triptych.verifiers.grammars.engines import ENGINES, Engine, engine_version
from triptych.verifiers.grammars.grammar import Grammar
from triptych.verifiers.grammars.vocabulary import Vocabulary

MODEL = "smollm2-135m"
LONG_SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
LONG = json.dumps({"name": "a b " * 40, "age": 31, "tags": ["some words of a tag"] * 9})[:389]
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def micros(work: Callable[[int], Any], calls: int, turns: int = 5) -> float:
    """Microseconds of processor time of a call, the median of some turns."""
    taken = []
    for _ in range(turns):
        began = time.process_time()
        for i in range(calls):
            work(i)
        taken.append((time.process_time() - began) / calls * 1e6)
    return statistics.median(taken)


def masks(vocabulary: Vocabulary) -> list[dict[str, Any]]:
    """A mask and a question at 389 characters, by engine."""
    return [_times(one, vocabulary) for one in ENGINES if engine_version(one) is not None]


def _times(engine: Engine, vocabulary: Vocabulary) -> dict[str, Any]:
    row = vocabulary.spelled(LONG)
    verifier = Grammar.from_json_schema(LONG_SCHEMA).on(vocabulary, engine)
    state = verifier.state
    for token in row:
        state = state.after(token)
    more = vocabulary.spelled("some")[0]
    asked = Question.about(torch.tensor([row]))
    calls = 3 if engine == "triptych" else 300
    return {
        "engine": f"{engine} {engine_version(engine)}",
        "mask": micros(lambda _: state.mask(), calls),
        "one token": micros(lambda _: state.allows(more), 100),
        "question to the verifier": micros(lambda _: verifier.log_values(asked), 100),
        "mask by the verifier, known": micros(lambda _: verifier.masks(asked), 100),
    }


def texts(lm: PretrainedCausalLM, prompts: int, tokens: int) -> list[dict[str, Any]]:
    """Accepted JSON a second, by masked draws and by tokenwise without masks."""
    ask = [f"Person {i} as JSON: " for i in range(prompts)]
    verifier = Grammar.from_json_schema(SCHEMA).on(lm, "llguidance")
    asking = ByQuestions(verifier)
    rows = [
        _measured("tokenwise by questions", lambda: _tokenwise(lm, ask, asking, tokens)),
        _measured("tokenwise by masks", lambda: _tokenwise(lm, ask, verifier, tokens)),
    ]
    if engine_version("xgrammar") is not None:
        rows.append(_measured("xgrammar in generate", lambda: _generate(lm, ask, tokens)))
    return rows


class ByQuestions:
    """A verifier that has the masks of another one and does not show them."""

    def __init__(self, verifier: Any) -> None:
        self.log_values, self.over, self.reads_over = verifier.log_values, verifier.over, True


def _measured(name: str, make: Callable[[], list[str]]) -> dict[str, Any]:
    began, began_wall = time.process_time(), time.perf_counter()
    made = make()
    seconds, wall = time.process_time() - began, time.perf_counter() - began_wall
    right = sum(_fits(text) for text in made)
    return {
        "what": name,
        "texts": len(made),
        "accepted": right,
        "seconds": seconds,
        "wall": wall,
        "accepted a second": right / seconds,
    }


def _fits(text: str) -> bool:
    import jsonschema

    try:
        return jsonschema.Draft202012Validator(SCHEMA).is_valid(json.loads(text))
    except ValueError:
        return False


def _tokenwise(lm: Any, prompts: list[str], verifier: Any, tokens: int) -> list[str]:
    decoder = lm.decoder(prompts)
    lengths = (decoder.lengths + tokens).tolist()
    made = tokenwise.sample(
        decoder, verifier, length=lengths, end_token=list(lm.end_tokens), rng=TorchRng(0)
    )
    return [lm.text_of(row) for row in made.completions()]


def _generate(lm: Any, prompts: list[str], tokens: int) -> list[str]:
    import xgrammar
    from xgrammar.contrib.hf import LogitsProcessor

    info = xgrammar.TokenizerInfo.from_huggingface(lm.tokenizer, vocab_size=lm.vocab_size)
    compiler = xgrammar.GrammarCompiler(info, max_threads=1)
    grammar = compiler.compile_json_schema(json.dumps(SCHEMA), strict_mode=True)
    lm.tokenizer.padding_side = "left"
    if lm.tokenizer.pad_token is None:
        lm.tokenizer.pad_token = lm.tokenizer.eos_token
    given = lm.tokenizer(prompts, return_tensors="pt", padding=True)
    torch.manual_seed(0)
    made = lm.model.generate(
        **given,
        do_sample=True,
        top_k=0,
        top_p=1.0,
        max_new_tokens=tokens,
        logits_processor=[LogitsProcessor(grammar)],
        pad_token_id=lm.tokenizer.pad_token_id,
    )
    return lm.tokenizer.batch_decode(
        made[:, given["input_ids"].shape[1] :], skip_special_tokens=True
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=64)
    given = parser.parse_args()
    torch.set_num_threads(1)
    lm = PretrainedCausalLM.from_pretrained(cached(given.model) or given.model)
    for row in [*masks(Vocabulary.of(lm)), *texts(lm, given.prompts, given.tokens)]:
        print(json.dumps({k: round(v, 2) if isinstance(v, float) else v for k, v in row.items()}))


if __name__ == "__main__":
    main()
