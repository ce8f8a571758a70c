"""Guided text: against `generate` of transformers, against one prompt at a time, and against genlm.

    python -m benchmarks.text [--model FOLDER] [--file FILE]

The models are Llamas with random weights and a vocabulary of 50,000 made-up words; FOLDER (or the
variable TRIPTYCH_BENCH_MODEL) is a pretrained one besides, as SmolLM2-135M. The row against genlm
needs it, and genlm-control next to this torch; without them the row says "not run". All times are
processor time on one thread: other programs on the machine change the wall-clock time of one turn
by more than the two sides differ. Time that a program only waits is not in it.
"""

import argparse
import asyncio
import importlib.util
import itertools
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from triptych.core.decoders import RecomputingDecoder
from triptych.core.files import write_json
from triptych.core.streams import RowStreams
from triptych.guidance.guide import Guided, guide
from triptych.inference.guided import backtracking
from triptych.inference.guided.adaptive import Adaptive
from triptych.inference.guided.backtracking import Backtracking
from triptych.inference.guided.vgb import Vgb
from triptych.models.pretrained.causal import PretrainedCausalLM
from triptych.verifiers.grammars.grammar import Grammar
from triptych.verifiers.text import TextRule
from triptych.verifiers.text_rules.brackets import BracketPrefix
from triptych.verifiers.text_rules.json_text import JsonPrefix

Row = dict[str, Any]
VOCAB = 50_000
PIECES = ["<pad>", "<bos>", "<eos>", *'abcdefghijklmnopqrstuvwxyz0123456789 ()[]{}:,."-\n']
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def random_lm(*, layers: int, width: int, vocab: int = VOCAB, length: int = 512) -> Any:
    """A Llama with random weights, large enough that its laws differ from prefix to prefix."""
    import transformers
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    transformers.logging.set_verbosity_error()
    words = itertools.chain(PIECES, (f"w{i}" for i in itertools.count()))
    ids = {word: i for i, word in enumerate(itertools.islice(words, vocab))}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    wrapped = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<bos>", eos_token="<eos>", pad_token="<pad>"
    )
    config = transformers.LlamaConfig(
        vocab_size=vocab,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        max_position_embeddings=length,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        model = transformers.LlamaForCausalLM(config)
        model.lm_head.weight[: len(PIECES)] *= 3  # the pieces that texts are made of
        model.lm_head.weight.mul_(4)
        model.lm_head.weight[2] = 0
    torch.set_num_threads(1)
    return PretrainedCausalLM(model.eval(), wrapped)


def pretrained_lm(folder: str) -> Any:
    lm = PretrainedCausalLM.from_pretrained(folder, local_files_only=True)
    torch.set_num_threads(1)
    return lm


def seconds(program: Callable[[], Any]) -> float:
    """Processor time of one call, on one torch thread."""
    if torch.get_num_threads() != 1:
        raise RuntimeError(f"torch runs {torch.get_num_threads()} threads, not one")
    started = time.process_time()
    program()
    return time.process_time() - started


def everything(text: str) -> bool:
    return True


def generation(lm: Any, name: str, *, batch: int, new: int, turns: int) -> Row:
    """Algorithm 1 with a verifier of text that accepts everything, against `generate`.

    No text ends early on either side: the end tokens have probability 0.
    """
    prompts = [f"{'abcdefgh'[i % 8]} {i % 10} and" for i in range(batch)]
    rows = [[lm.bos_token, *row] for row in lm.encode(prompts)]
    longest = max(map(len, rows))
    pad = lm.tokenizer.pad_token_id or 0
    inputs = torch.tensor([[pad] * (longest - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows])
    ends = lm.end_tokens
    sizes: list[int] = []

    def ours() -> None:
        decoder = lm.decoder([row[1:] for row in rows])
        rule = TextRule(everything, lm.text_of, start=None)
        result = backtracking.sample(
            decoder,
            rule,
            length=[len(row) - 1 + new for row in rows],
            quota=4,
            stride=4,
            transform=_without(ends),
            rng=RowStreams(0, torch.arange(batch)),
        )
        sizes.append(int(result.costs.generated.sum()))
        lm.decode([list(row) for row in result.completions()])

    def theirs() -> None:
        torch.manual_seed(0)
        found = lm.model.generate(
            inputs,
            attention_mask=mask,
            do_sample=True,
            top_k=0,
            top_p=1.0,
            temperature=1.0,
            max_new_tokens=new,
            suppress_tokens=list(ends),
            eos_token_id=None,
            pad_token_id=pad,
            use_cache=True,
        )
        assert found.shape[1] == longest + new
        lm.tokenizer.batch_decode(found[:, longest:])

    row = {
        "what": f"guided text, a verifier that accepts all, {batch} x {new} tokens, {name}",
        "peer": "transformers generate, same model",
        "bar": 0.83,
        **_turns(ours, theirs, turns),
    }
    assert set(sizes) == {batch * new}
    return row


def _without(tokens: tuple[int, ...]) -> Callable[[torch.Tensor], torch.Tensor]:
    """A transform: these tokens are never drawn, as suppress_tokens of transformers."""
    from triptych.inference.guided.transforms import keeping_laws

    chosen = torch.tensor(tokens)
    return keeping_laws(
        lambda log_probs: log_probs.index_fill(-1, chosen, -torch.inf).log_softmax(-1)
    )


def one_by_one(*, count: int = 100, compared: int = 3, new: int = 32, turns: int = 3) -> Row:
    """Algorithm 1 on many prompts with a cache, against one prompt at a time without one.

    The time one by one is scaled by the number of calls of the model.
    """
    lm, rule = random_lm(layers=4, width=256, vocab=2000), BracketPrefix()
    prompts = [f"{'abcdefghij'[i % 10]}{i // 10} say: (" + "ab" * 30 for i in range(count)]
    rows = lm.encode(prompts)

    def together() -> Guided:
        return guide(
            lm, prompts, rule, Backtracking(quota=4, stride=4), max_new_tokens=new, batch=count
        )

    def alone(number: int) -> tuple[list[int], int]:
        """The same choices: the stream of the prompt's number."""
        row = rows[number]
        decoder = RecomputingDecoder(lm, 1)
        decoder.extend(torch.tensor([row]))
        result = backtracking.sample(
            decoder,
            TextRule(rule, lm.text_of, start=None, end_token=lm.end_tokens),
            length=len(row) + new,
            quota=4,
            stride=4,
            end_token=lm.end_tokens,
            rng=RowStreams(0, torch.tensor([number])),
        )
        return list(result.completions()[0]), int(result.costs.generator_calls.sum())

    found = together()
    calls = sum(costs["generator_calls"] for costs in found.costs)
    alone(0)
    same, times = 0, []
    for turn in range(turns):
        mine = seconds(together)
        numbers = range(turn, count, count // compared)[:compared]
        made: list[tuple[list[int], int]] = []
        theirs = seconds(lambda n=numbers, made=made: made.extend(map(alone, n)))
        times.append((mine, theirs * calls / sum(asked for _, asked in made)))
        ends = set(lm.end_tokens)
        texts = [lm.text_of([t for t in tokens if t not in ends]) for tokens, _ in made]
        same += sum(text == found.texts[n] for text, n in zip(texts, numbers, strict=True))
    return {
        "what": f"Algorithm 1 on text, {count} prompts x {new} tokens, 4 layers; {same} of "
        f"{turns * compared} texts the same",
        "peer": "one prompt at a time, no cache",
        "bar": 20.0,
        "same_strings": same,
        "compared_strings": turns * compared,
        **_ratios(times),
    }


def against_genlm(
    folder: str | None, *, n: int = 6, new: int = 24, turns: int = 12, masks: bool = False
) -> Row:
    """JSON of a schema from one prompt: seconds for each token of each particle.

    Both ask the same function of text; with `masks` ours has the masks of a grammar engine instead.
    A turn is one run of each, with its own seed. A text counts as accepted with the weight of its
    particle there, and as the particle that is picked here.
    """
    of = " by masks of llguidance" if masks else ""
    named = f"particles with a JSON verifier{of}, {n} particles, at most {new} tokens"
    missing = "genlm-control is not installed"
    if importlib.util.find_spec("genlm") is None or folder is None:
        why = missing if folder is not None else "no pretrained model was named"
        return {"what": named, "peer": "genlm-control, AWRS", "not_run": why}
    from genlm.backend.llm.hf import AsyncTransformer
    from genlm.control import AWRS, Potential, PromptedLLM

    lm, rule = pretrained_lm(folder), JsonPrefix(SCHEMA)
    engine = Grammar.from_json_schema(SCHEMA).on(lm, "llguidance") if masks else None
    prompt = 'Alice is 30 years old. As JSON with "name" and "age": '
    asked = {"ours": 0, "theirs": 0}

    class Rule(Potential):  # pyright: ignore[reportGeneralTypeIssues]
        """The same rule on bytes; half a character at the end is left out."""

        async def complete(self, context: list[int]) -> float:
            return self._answer(context, True)

        async def prefix(self, context: list[int]) -> float:
            return self._answer(context, False)

        def _answer(self, context: list[int], finished: bool) -> float:
            asked["theirs"] += 1
            text = bytes(context).decode("utf-8", errors="ignore")
            return 0.0 if rule(text, finished=finished) else -torch.inf

    ends = [lm.tokenizer.convert_ids_to_tokens(t).encode() for t in lm.end_tokens]
    backend = AsyncTransformer(lm.model, lm.tokenizer, batch_size=n)
    llm = PromptedLLM(backend, eos_byte_strings=ends)
    llm.prompt_ids = [lm.bos_token, *lm.encode([prompt])[0]]
    condition = Rule(list(range(256))).coerce(llm, f=b"".join)
    done: dict[str, list[float]] = {"ours": [0, 0], "theirs": [0, 0]}  # tokens, right texts

    def theirs(seed: int) -> int:
        backend.clear_cache()
        backend.cache_kv(llm.prompt_ids)  # the prompt goes through the model once
        sampler = AWRS(llm, condition, seed=seed)
        found = asyncio.run(
            sampler.smc(n_particles=n, ess_threshold=0.5, max_tokens=new, verbosity=0)
        )
        texts = [
            b"".join(t for t in tokens if isinstance(t, bytes)).decode(errors="ignore")
            for tokens in found.contexts
        ]
        shares = found.normalized_weights
        right = [rule(text, finished=True) for text in texts]
        done["theirs"][1] += sum(float(s) for s, yes in zip(shares, right, strict=True) if yes)
        return sum(len(tokens) for tokens in found.contexts)

    def ours(seed: int) -> int:
        verifier = engine if masks else rule
        found = guide(
            lm, prompt, verifier, Adaptive(n=n, ess=0.5, tries=1000), max_new_tokens=new, rng=seed
        )
        asked["ours"] += found.costs[0]["verifier_calls"]
        done["ours"][1] += bool(found.accepted[0])
        return found.costs[0]["generated"]

    theirs(0), ours(0)
    asked.update(ours=0, theirs=0)
    done.update(ours=[0, 0], theirs=[0, 0])
    times, spent = [], {"ours": 0.0, "theirs": 0.0}
    for turn in range(turns):
        sizes: list[int] = []
        mine = seconds(lambda turn=turn, sizes=sizes: sizes.append(ours(turn)))
        other = seconds(lambda turn=turn, sizes=sizes: sizes.append(theirs(turn)))
        spent["ours"] += mine
        spent["theirs"] += other
        done["ours"][0] += sizes[0]
        done["theirs"][0] += sizes[1]
        times.append((mine / max(1, sizes[0]), other / max(1, sizes[1])))
    shares = {k: done[k][1] / turns for k in done}
    return {
        "what": f"{named}, SmolLM2-135M, for each token of a particle; accepted "
        f"{shares['ours']:.0%} (theirs {shares['theirs']:.0%})",
        "peer": "genlm-control, AWRS",
        "bar": 1.0,
        "accepted": shares,
        "accepted_per_second": {k: done[k][1] / spent[k] for k in done},
        "questions_per_token": {k: asked[k] / max(1, done[k][0]) for k in done},
        "tokens": {k: done[k][0] for k in done},
        **_ratios(times),
    }


def questions(lm: Any, name: str, prompt: str, *, new: int, seeds: int) -> Iterator[Row]:
    """Questions to a JSON verifier for each token that is kept, and the share accepted."""
    settings: dict[str, dict[str, Any]] = {
        "adaptive": {"n": 8, "tries": 1000},
        "particles": {"n": 8},
        "tokenwise": {"tries": 1000},
    }
    for algorithm, options in settings.items():
        made = [
            guide(lm, prompt, JsonPrefix(SCHEMA), algorithm, max_new_tokens=new, rng=s, **options)
            for s in range(seeds)
        ]
        asked = sum(one.costs[0]["verifier_calls"] for one in made)
        kept = sum(one.costs[0]["generated"] - one.costs[0]["erased"] for one in made)
        yield {
            "algorithm": algorithm,
            "model": name,
            "asked": asked,
            "kept": kept,
            "alive": sum(one.complete[0] for one in made) / seeds,
            "accepted": sum(bool(one.accepted[0]) for one in made) / seeds,
            "seconds": sum(float(one.totals["seconds"]) for one in made),
        }


def walk(lm: Any, name: str, *, steps: int = 60, few: int = 6, turns: int = 3) -> Row:
    """VGB on a large vocabulary: with the bound on candidates, and asking about every token.

    Every step of a walk without a bound that finds a new node costs a question for every token, so
    a shorter walk is timed, and the time is for one step.
    """
    asked: list[float] = []
    covered: list[float] = []

    def walked(candidates: int, steps: int) -> Guided:
        return guide(
            lm,
            "some json: ",
            JsonPrefix(),
            Vgb(returns="last", steps=steps, candidates=candidates),
            max_new_tokens=12,
        )

    def ours() -> None:
        found = walked(64, steps)
        asked.append(found.costs[0]["verifier_calls"] / steps)
        covered.append(float(found.results[0].info.covered[0]))

    ours()
    times = []
    for _ in range(turns):
        mine = seconds(ours) / steps
        times.append((mine, seconds(lambda: walked(10**6, few)) / few))
    return {
        "what": f"VGB, JSON, {lm.vocab_size} tokens, {name}: a step, {asked[-1]:.1f} questions "
        f"each, at most 64 at a node (at least {covered[-1]:.2f} of the model's mass)",
        "peer": "the same, every token asked about",
        "bar": 20.0,
        "questions_per_step": asked[-1],
        "covered": covered[-1],
        **_ratios(times),
    }


def run() -> Iterator[Row]:
    folder = os.environ.get("TRIPTYCH_BENCH_MODEL")
    small = random_lm(layers=4, width=256)
    yield generation(small, "4 random layers, width 256, 50,000 words", batch=16, new=32, turns=5)
    pretrained = pretrained_lm(folder) if folder else None
    if pretrained is not None:
        yield generation(pretrained, "SmolLM2-135M", batch=8, new=16, turns=5)
    yield one_by_one()
    yield against_genlm(folder)
    yield against_genlm(folder, masks=True)
    yield walk(small, "4 random layers")
    if pretrained is not None:
        yield walk(pretrained, "SmolLM2-135M")


def _turns(ours: Callable[[], Any], theirs: Callable[[], Any], turns: int) -> dict[str, float]:
    ours(), theirs()
    return _ratios([(seconds(ours), seconds(theirs)) for _ in range(turns)])


def _ratios(times: list[tuple[float, float]]) -> dict[str, float]:
    """Medians, and the median and range of each turn's theirs / ours."""
    ratios = [theirs / ours for ours, theirs in times]
    return {
        "ours": statistics.median(ours for ours, _ in times),
        "theirs": statistics.median(theirs for _, theirs in times),
        "ratio": statistics.median(ratios),
        "low": min(ratios),
        "high": max(ratios),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="folder of a pretrained model")
    parser.add_argument("--file", type=Path)
    parser.add_argument("--questions", action="store_true", help="count questions instead")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.model:
        os.environ["TRIPTYCH_BENCH_MODEL"] = arguments.model
    rows = []
    folder = os.environ.get("TRIPTYCH_BENCH_MODEL")
    if arguments.questions:
        lm = pretrained_lm(folder) if folder else random_lm(layers=4, width=256)
        prompt = 'Alice is 30 years old. As JSON with "name" and "age": '
        made = questions(lm, "pretrained" if folder else "random", prompt, new=40, seeds=8)
    else:
        made = run()
    for row in made:
        print(json.dumps(row), flush=True)
        rows.append(row)
    if arguments.file:
        write_json(arguments.file, rows, indent=2)


if __name__ == "__main__":
    main()
