"""Rows from what was translated: BLEU, chrF++, repeated words, speedups, attention.

BLEU and chrF++ come from the package sacrebleu, with its signature. BLEURT needs a model that
cannot be had here, so it is not measured.
"""

import importlib
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from triptych.studies.refinement.shared.attention import MEASURES
from triptych.studies.refinement.shared.pipeline import Found
from triptych.studies.refinement.shared.rows import (
    Attended,
    Compared,
    Row,
    Scored,
    SpedUp,
    Timed,
    Trained,
)
from triptych.studies.refinement.shared.translating import equal_neighbours

RESAMPLES = 500
AUTOREGRESSIVE = "student beam 5"

Decode = Callable[[Sequence[Sequence[int]]], list[str]]


# ------------------------------------------------------------------ words


def repeated_words(output: str, reference: str) -> int:
    """Words of the output that repeat the word before them, beyond repeats of the reference.

    Worked value: "the the man man man" against "the man man": "the the" is not in the reference,
    "man man" is there once and twice in the output, so 1 + 1 = 2.
    """
    wanted = Counter(_repeats(reference))
    found = Counter(_repeats(output))
    return sum((found - wanted).values())


def _repeats(text: str) -> list[str]:
    words = text.split()
    return [a for a, b in itertools.pairwise(words) if a == b]


# ------------------------------------------------------------------ scores


class Measured(NamedTuple):
    """Scores of one system on one set; None where sacrebleu is missing.

    brevity      the factor in BLEU that punishes outputs shorter than their references
    signature    of BLEU: its version and settings
    """

    bleu: float | None = None
    chrf: float | None = None
    brevity: float | None = None
    signature: str = ""


class Scores:
    """BLEU and chrF++ of outputs against one reference each; None where sacrebleu is missing."""

    def __init__(self) -> None:
        try:
            metrics = importlib.import_module("sacrebleu.metrics")
        except ImportError:
            self._bleu, self._chrf = None, None
        else:
            self._bleu, self._chrf = metrics.BLEU(), metrics.CHRF(word_order=2)

    @property
    def ready(self) -> bool:
        return self._bleu is not None

    def of(
        self, outputs: Sequence[str], references: Sequence[str], *, with_chrf: bool = True
    ) -> Measured:
        """BLEU and its penalty, and chrF++, which takes ten times as long."""
        if self._bleu is None or self._chrf is None:
            return Measured()
        bleu = self._bleu.corpus_score(list(outputs), [list(references)])
        chrf = None
        if with_chrf:
            chrf = float(self._chrf.corpus_score(list(outputs), [list(references)]).score)
        signature = str(self._bleu.get_signature())
        return Measured(float(bleu.score), chrf, float(bleu.bp), signature)

    def counts(
        self, outputs: Sequence[str], references: Sequence[str]
    ) -> "np.ndarray[Any, np.dtype[np.float64]]":
        """For every sentence: lengths of output and reference, n-grams that match, n-grams."""
        assert self._bleu is not None
        found = [
            self._bleu.corpus_score([output], [[reference]])
            for output, reference in zip(outputs, references, strict=True)
        ]
        return np.array(
            [[each.sys_len, each.ref_len, *each.counts, *each.totals] for each in found],
            dtype=float,
        )


def bleu_of_counts(counts: "np.ndarray[Any, np.dtype[np.float64]]") -> float:
    """Corpus BLEU from summed counts, with sacrebleu's exponential smoothing.

    Worked values: output and reference of 5 equal words: all n-grams match, 100. No word in
    common: 0, without smoothing.
    """
    written, wanted = counts[0], counts[1]
    matches, totals = counts[2:6], counts[6:10]
    if written == 0 or not matches.any():
        return 0.0
    smooth, log_precision, orders = 1.0, 0.0, 0
    for match, total in zip(matches, totals, strict=True):
        if total == 0:
            break
        orders += 1
        if match == 0:
            smooth *= 2
            match = 1 / smooth
        log_precision += math.log(match / total)
    brevity = 1.0 if written >= wanted else math.exp(1 - wanted / written)
    return 100 * brevity * math.exp(log_precision / 4) if orders == 4 else 0.0


def bleu_difference(
    first: "np.ndarray[Any, np.dtype[np.float64]]",
    second: "np.ndarray[Any, np.dtype[np.float64]]",
    *,
    seed: int = 0,
) -> tuple[float, float, float]:
    """BLEU of the first minus that of the second, and its 95 % interval over sentences."""
    difference = bleu_of_counts(first.sum(0)) - bleu_of_counts(second.sum(0))
    draws = np.random.default_rng(seed)
    found = []
    for _ in range(RESAMPLES):
        rows = draws.integers(len(first), size=len(first))
        found.append(bleu_of_counts(first[rows].sum(0)) - bleu_of_counts(second[rows].sum(0)))
    low, high = np.quantile(found, [0.025, 0.975])
    return difference, float(min(low, difference)), float(max(high, difference))


def speedup(
    slow: Sequence[float], fast: Sequence[float], at: float, *, seed: int = 0
) -> tuple[float, float, float]:
    """The quantile of the slow seconds over that of the fast ones, with a bootstrap interval.

    Both are of the same sentences, as far as both were timed.

    Worked value: 2, 4, 6 seconds against 1, 1, 1 at the median: 4.
    """
    count = min(len(slow), len(fast))
    both = np.array([slow[:count], fast[:count]])

    def ratio(rows: Any) -> float:
        above, under = np.quantile(both[:, rows], at, axis=1)
        return float(above / under)

    found = ratio(slice(None))
    draws = np.random.default_rng(seed)
    all_ = [ratio(draws.integers(count, size=count)) for _ in range(RESAMPLES)]
    low, high = np.quantile(all_, [0.025, 0.975])
    return found, float(min(low, found)), float(max(high, found))


# ------------------------------------------------------------------ rows


def rows_of_phases(
    phases: Iterable[tuple[str, Found]],
    *,
    data: str,
    direction: str,
    seed: int,
    pairs: int,
    references: Mapping[str, Sequence[str]],
    decode: Decode,
    decode_other: Decode,
) -> Iterator[Row]:
    """The rows of one pipeline, from what its phases found."""
    run = {"data": data, "direction": direction, "seed": seed}
    scores = Scores()
    counts: dict[tuple[str, str], Any] = {}
    for phase, found in phases:
        if "training" in found:
            told = found["training"]
            yield Trained(
                **run,
                model=phase,
                parameters=told["parameters"],
                pairs=pairs,
                steps=told["steps"],
                seconds=float(told["seconds"]),
                recorded=bool(told["recorded"]),
                loss=float(told["last_loss"]),
            )
        if phase == "attention":
            yield from _attended(found, run)
        for how, sets in found.get("outputs", {}).items():
            for on, translated in sets.items():
                text = decode_other if phase.endswith("other_vocabulary") else decode
                outputs = text(translated["tokens"])
                yield _scored(outputs, references[on], translated, scores, run, phase, how, on)
                if scores.ready:
                    counts[f"{phase} {how}", on] = scores.counts(outputs, references[on])
    yield from _compared(counts, run)


def _scored(
    outputs: Sequence[str],
    references: Sequence[str],
    translated: Found,
    scores: Scores,
    run: Mapping[str, Any],
    model: str,
    how: str,
    on: str,
) -> Scored:
    tested = model in ("student", "padir") and on.startswith("test")
    measured = scores.of(outputs, references, with_chrf=tested)
    repeats = sum(repeated_words(a, b) for a, b in zip(outputs, references, strict=True))
    left = sum(equal_neighbours(tokens) for tokens in translated["tokens"])
    before = max(left, sum(translated["stutter"]))  # beam search drops nothing, and counts none
    return Scored(
        **run,
        model=model,
        how=how,
        on=on,
        sentences=len(outputs),
        bleu=measured.bleu,
        chrf=measured.chrf,
        brevity=measured.brevity,
        repeats=repeats,
        words=sum(len(output.split()) for output in outputs),
        token_repeats=before,
        tokens=sum(map(len, translated["tokens"])) + before - left,
        passes=sum(translated["passes"]) / len(outputs),
        signature=measured.signature,
    )


def _compared(counts: Mapping[tuple[str, str], Any], run: Mapping[str, Any]) -> Iterator[Compared]:
    """Every refinement against the autoregressive student; every ablation against its reference."""
    for (system, on), own in counts.items():
        model, _, how = system.rpartition(" ")
        other = None
        if model == "padir":
            other = AUTOREGRESSIVE
        elif model == "ablation raw_other_vocabulary":
            other = f"ablation raw_pairs {how}"
        elif model.startswith("ablation") and model != "ablation reference":
            other = f"ablation reference {how}"
        if other is not None and (other, on) in counts:
            found = bleu_difference(own, counts[other, on])
            yield Compared(
                **run,
                on=on,
                first=system,
                second=other,
                difference=found[0],
                low=found[1],
                high=found[2],
            )


def _attended(found: Found, run: Mapping[str, Any]) -> Iterator[Attended]:
    for steps, classes in found.items():
        for stutter, sums in classes.items():
            for measure in MEASURES:
                count = int(sums["count"][measure])
                if count > 1:
                    mean = sums["total"][measure] / count
                    spread = sums["square"][measure] / count - mean * mean
                    yield Attended(
                        **run,
                        steps=int(steps.removeprefix("T=")),
                        stutter=stutter == "yes",
                        measure=measure,
                        count=count,
                        mean=mean,
                        deviation=math.sqrt(max(0.0, spread) * count / (count - 1)),
                    )


def rows_of_latencies(records: Sequence[Found], *, data: str) -> Iterator[Row]:
    """Medians, 99th percentiles, and speedups over the autoregressive student."""
    groups: dict[tuple[str, int, str], dict[str, Found]] = {}
    for record in records:
        key = (record["direction"], record["seed"], record["device"])
        groups.setdefault(key, {})[f"{record['model']} {record['how']}"] = record
    for (direction, seed, device), systems in groups.items():
        run = {"data": data, "direction": direction, "seed": seed, "device": device}
        for system, record in systems.items():
            model, _, _ = system.partition(" ")
            yield Timed(
                **run,
                model=model,
                how=system.removeprefix(f"{model} "),
                sentences=len(record["seconds"]),
                median=float(np.quantile(record["seconds"], 0.5)),
                p99=float(np.quantile(record["seconds"], 0.99)),
                passes=sum(record["passes"]) / len(record["passes"]),
            )
        for first, fast in systems.items():
            for second, slow in systems.items():
                if first.startswith("padir") and second.startswith("student"):
                    for name, at in (("median", 0.5), ("p99", 0.99)):
                        ratio = speedup(slow["seconds"], fast["seconds"], at)
                        yield SpedUp(
                            **run,
                            first=first,
                            second=second,
                            at=name,
                            ratio=ratio[0],
                            low=ratio[1],
                            high=ratio[2],
                        )
