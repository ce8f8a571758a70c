"""One configuration on the prompts of some repeats: completions, correct cases and costs.

Every method stops a completion by the same rule: after the requested number of lines, at an end
token, or at the limit of tokens, whichever comes first.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

from triptych.core.protocols import Verifier
from triptych.core.randomness import TorchRng
from triptych.inference.guided import ancestral, backtracking, blocks, particles, vgb
from triptych.inference.guided.generation import Result
from triptych.inference.guided.transforms import compose, nucleus, temperature
from triptych.structures.append_tests.evaluate import Evaluation, count_cases, evaluate
from triptych.structures.append_tests.prompts import (
    MEANINGFUL_NAMES,
    Prompt,
    draw_prompts,
    random_names,
)
from triptych.studies.api.study import Bench
from triptych.studies.generation.code_cases.lines import LineDecoder, whole_lines
from triptych.studies.generation.code_cases.probes import RandomVerifier, Verifiers
from triptych.studies.generation.code_cases.rows import Completed, Config, Names, Sizes
from triptych.studies.generation.code_cases.writers import Writer
from triptych.verifiers.text import TextRule
from triptych.verifiers.text_rules.append_tests import PromptedAppendTests

WALK = 8  # steps of VGB, in times the limit of tokens


class _Row(NamedTuple):
    """One completion, of a repeat, with its costs."""

    repeat: int
    prompt: int
    evaluation: Evaluation
    kept: int
    erased: int
    generated: int
    asked: int
    stopped: bool
    out_of_quota: bool


class Completions:
    """Completes the same prompts by every configuration of a unit.

    again   there are several configurations: what the prompts put into the cache is kept
    """

    def __init__(
        self,
        sizes: Sizes,
        repeats: Sequence[int],
        writer: Writer,
        verifiers: Verifiers,
        bench: Bench,
        seed: int,
        *,
        again: bool = True,
    ) -> None:
        self.sizes, self.repeats, self.writer, self.again = sizes, repeats, writer, again
        self.verifiers, self.bench, self.seed = verifiers, bench, seed
        self._prompts: dict[Names, list[list[Prompt]]] = {}
        self._begun: dict[tuple[Names, int, int], list[LineDecoder]] = {}

    def run(self, config: Config) -> Iterator[Completed]:
        """A row for every repeat."""
        sizes, rows, network = self.sizes, [], 0
        rng = self.bench.rng(f"{config.config}, repeats {list(self.repeats)}")
        verifier = self._verifier(config)
        prompts = self._copies(config.names)
        first = 0
        for decoder in self._decoders(config):
            before = decoder.slots_run
            result = _sample(decoder, verifier, config, sizes, self.writer, rng)
            network += decoder.slots_run - before
            some = prompts[first : first + len(result.lengths)]
            rows += self._read(result, some)
            first += len(some)
        total = sum(row.generated for row in rows)
        for repeat in self.repeats:
            own = [row for row in rows if row.repeat == repeat]
            drawn = sum(row.generated for row in own)
            yield self._row(config, repeat, own, round(network * drawn / max(1, total)))

    # ------------------------------------------------------------------ prompts

    def _copies(self, names: Names) -> list[tuple[int, int, Prompt]]:
        """(repeat, number of the prompt, prompt) of every completion."""
        if names not in self._prompts:
            self._prompts[names] = [self._draw(names, repeat) for repeat in self.repeats]
        return [
            (repeat, number, prompt)
            for repeat, prompts in zip(self.repeats, self._prompts[names], strict=True)
            for number, prompt in enumerate(prompts)
            for _ in range(self.sizes.completions)
        ]

    def _draw(self, names: Names, repeat: int) -> list[Prompt]:
        rng, count = self.bench.rng(f"{names} prompts {repeat}"), self.sizes.prompts
        if names == "random":
            chosen = random_names(count, rng)
        else:
            chosen = [MEANINGFUL_NAMES[number % len(MEANINGFUL_NAMES)] for number in range(count)]
        return draw_prompts(
            chosen, rng, cases=self.sizes.cases, demonstrations=self.sizes.demonstrations
        )

    def _decoders(self, config: Config) -> Iterator[LineDecoder]:
        """Decoders that have run the prompts; copies of them, where they are needed again."""
        layer = self.sizes.layer if config.layer is None else config.layer
        at_once = max(1, self.sizes.at_once // config.n)
        key = (config.names, layer, at_once)
        if not self.again:
            yield from self._begin(config.names, layer, at_once)
            return
        if key not in self._begun:
            if len(self._begun) > 1:  # other layers: their caches are large
                self._begun.clear()
            self._begun[key] = list(self._begin(*key))
        for decoder in self._begun[key]:
            yield decoder.fork(torch.arange(len(decoder.lengths), device=decoder.lengths.device))

    def _begin(self, names: Names, layer: int, at_once: int) -> Iterator[LineDecoder]:
        rows = [self.writer.encode(prompt.text) for *_, prompt in self._copies(names)]
        for first in range(0, len(rows), at_once):
            some = rows[first : first + at_once]
            decoder = self.writer.decoder(some, layer=layer, lines=self.sizes.cases)
            decoder.hidden_state()
            yield decoder

    # ------------------------------------------------------------------ verifiers

    def _verifier(self, config: Config) -> Verifier | None:
        if config.verifier == "probe":
            assert config.layer is not None
            assert config.depth is not None
            return self.verifiers.probe(config.level, config.layer, config.depth)
        if config.verifier == "random":
            return RandomVerifier(  # pyright: ignore[reportReturnType]  # asked about a decoder
                self.bench.rng(f"random verifier, {list(self.repeats)}")
            )
        if config.verifier == "none":
            return None
        rule = PromptedAppendTests(self.sizes.cases, distinct=config.verifier == "distinct rule")
        return TextRule(rule, self.writer.text_of, end_token=self.writer.end_tokens or None)

    # ------------------------------------------------------------------ what came out

    def _read(self, result: Result[Any], copies: Sequence[tuple[int, int, Prompt]]) -> list[_Row]:
        quota = getattr(result.info, "quota_left", None)
        used_up = torch.zeros_like(result.lengths) if quota is None else quota == 0
        costs = torch.stack(
            [
                result.lengths - result.prompt_lengths,
                result.costs.erased,
                result.costs.generated,
                result.costs.verifier_calls,
            ],
            1,
        ).tolist()
        rows = []
        for (repeat, number, prompt), tokens, cost, used in zip(
            copies, result.completions(), costs, used_up.tolist(), strict=True
        ):
            text = self.writer.text_of(tokens)
            ended = bool(tokens) and tokens[-1] in self.writer.end_tokens
            found = evaluate(text, prompt.name, cases=prompt.cases, ended=ended)
            stopped = whole_lines(text) >= prompt.cases
            kept, erased, generated, asked = cost
            rows.append(
                _Row(repeat, number, found, kept, erased, generated, asked, stopped, bool(used))
            )
        return rows

    def _row(self, config: Config, repeat: int, rows: list[_Row], network: int) -> Completed:
        sizes = self.sizes
        by_prompt = [
            [row.evaluation for row in rows if row.prompt == number]
            for number in range(sizes.prompts)
        ]
        counts = count_cases(by_prompt)
        faults = Counter(line.fault.name.lower() for row in rows for line in row.evaluation.lines)
        kept, erased = sum(row.kept for row in rows), sum(row.erased for row in rows)
        queries = sum(row.generated for row in rows)
        beyond = sum(sizes.max_new_tokens - row.kept for row in rows if row.stopped)
        runs_on = config.method in ("sampling", "backtracking")
        return Completed(
            **dataclasses.asdict(config),
            seed=self.seed,
            repeat=repeat,
            model=sizes.model,
            requested=len(rows) * sizes.cases,
            correct=counts.correct,
            within=counts.within,
            pooled=counts.pooled,
            by_type=(counts.within_by_type, counts.pooled_by_type),
            faults=dict(sorted(faults.items())),
            kept=kept,
            erased=erased,
            queries=queries,
            network_tokens=network,
            program_queries=kept + erased,
            limit_queries=queries + (beyond if runs_on else 0),
            verifier_calls=sum(row.asked for row in rows),
            stopped=sum(row.stopped for row in rows),
            out_of_quota=sum(row.out_of_quota for row in rows),
        )


def _sample(
    decoder: LineDecoder,
    verifier: Verifier | None,
    config: Config,
    sizes: Sizes,
    writer: Writer,
    rng: TorchRng,
) -> Result[Any]:
    """Complete every row of the decoder."""
    shared: dict[str, Any] = {
        "length": (decoder.lengths + sizes.max_new_tokens).tolist(),
        "end_token": writer.end_tokens or None,
        "transform": compose(temperature(config.temperature), nucleus(config.top_p)),
        "rng": rng,
    }
    if config.method == "sampling":
        return ancestral.sample(decoder, **shared)
    assert verifier is not None
    if config.method == "backtracking":
        return backtracking.sample(
            decoder,
            verifier,
            quota=config.quota,
            stride=config.stride,
            redo_argmax=config.redo_argmax,
            verify_redone=config.verify_redone,
            threshold=config.threshold,
            **shared,
        )
    if config.method == "blocks":
        return blocks.sample(
            decoder,
            verifier,
            block=sizes.max_new_tokens,
            n=config.n,
            block_end=writer.line_breaks(),
            **shared,
        )
    if config.method == "particles":
        return particles.sample(decoder, verifier, n=config.n, **shared)
    return vgb.sample(decoder, verifier, steps=WALK * sizes.max_new_tokens, lazy=False, **shared)
