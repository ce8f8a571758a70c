"""How much faster is refinement than beam search, at the published size and lengths [li, 4.2.3]?

Speed depends on shapes and lengths and not on what a network has learned. So networks of the
published shape (6+6 layers of width 512, 32,128 pieces, 67 million parameters) keep their first
weights, and every sentence has a target length that is drawn: a gamma law of mean 31 and standard
deviation 12, where the thesis has averages of 28 to 33 tokens. Beam search writes that many tokens;
its decoder has a cache. Refinement tries five lengths around it and takes all of its steps: trained
networks often stop earlier. One sentence at a time, all systems in turn, from numbers to numbers.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from triptych.core.estimates import Estimate
from triptych.core.randomness import TorchRng
from triptych.inference.beam import beam_search
from triptych.inference.chains.refinement import best_hypotheses, drop_stutter, refine
from triptych.models.encoder_decoder import EncoderDecoder, PairShape
from triptych.models.translators import SourceDecoder, SourceRefiner
from triptych.studies.api.decide import Verdict, above, at_least, decide, shown
from triptych.studies.api.figures import Figure, Panel, Series
from triptych.studies.api.study import Bench, Claim, Rows, Scale, Settings, Study, Unit
from triptych.studies.refinement.shared.scoring import speedup
from triptych.studies.refinement.shared.translating import encode, first_hypotheses
from triptych.training.translation import END, FIRST_WORD, START

MEAN, DEVIATION, SHORTEST, LONGEST = 31.0, 12.0, 4, 120  # target lengths, in tokens
PUBLISHED_MEANS = (28, 33)
BEAM = "beam search, 5 beams"
REFINED = "refinement, 4 steps"
SYSTEMS = (REFINED, "refinement, 10 steps", "greedy decoding", BEAM)
MILLION, TIMED = 67, 1000
CPU = "cpu"  # a device whose name does not begin so is a GPU


@dataclass(frozen=True, kw_only=True)
class TranslationSpeed(Settings):
    """Shape of the networks, and sentences for each seed: a seed is one unit, timed on its own."""

    seeds: int = 4
    first_seed: int = 0
    sentences: int = 250
    vocabulary: int = 32_128
    length: int = 256
    width: int = 512
    layers: int = 6
    heads: int = 8
    feedforward: int = 2048
    lengths: int = 5
    beams: int = 5
    systems: tuple[str, ...] = SYSTEMS


@dataclass(frozen=True, kw_only=True)
class TimeSentences(Unit):
    """This many sentences, one at a time."""

    sentences: int
    vocabulary: int
    length: int
    width: int
    layers: int
    heads: int
    feedforward: int
    lengths: int
    beams: int
    systems: tuple[str, ...]


@dataclass(frozen=True)
class Timed:
    """One sentence by one system.

    target    tokens to write, with the end token; passes: of the decoder
    """

    seed: int
    sentence: int
    device: str
    parameters: int
    system: str
    target: int
    passes: int
    seconds: float


def units(settings: TranslationSpeed) -> Sequence[TimeSentences]:
    """One for each seed."""
    last = settings.first_seed + settings.seeds
    return [TimeSentences.of(settings, seed=seed) for seed in range(settings.first_seed, last)]


def target_lengths(count: int, seed: int, most: int) -> list[int]:
    """Drawn from a gamma law; whole numbers between the shortest and the longest."""
    shape, scale = (MEAN / DEVIATION) ** 2, DEVIATION**2 / MEAN
    drawn = np.random.default_rng(seed).gamma(shape, scale, size=count)
    return [int(n) for n in drawn.round().clip(SHORTEST, min(LONGEST, most))]


def run(unit: TimeSentences, bench: Bench) -> Iterable[Timed]:
    """Seconds of every sentence by every system."""
    causal, parallel = (
        EncoderDecoder(
            PairShape(
                unit.vocabulary,
                unit.length,
                width=unit.width,
                layers=unit.layers,
                heads=unit.heads,
                feedforward=unit.feedforward,
                causal=causal,
                positional_attention=not causal,
            ),
            seed=unit.seed,
            device=bench.device,
        ).eval()
        for causal in (True, False)
    )
    rng = TorchRng(unit.seed, torch.device(bench.device))
    wanted = target_lengths(unit.sentences, unit.seed, unit.length - unit.lengths)
    warm_up = min(10, len(wanted))
    parameters = parallel.shape.parameter_count
    for number, target in enumerate([*wanted[:warm_up], *wanted], start=-warm_up):
        source = torch.randint(
            FIRST_WORD,
            unit.vocabulary,
            (target,),
            generator=torch.Generator().manual_seed(unit.seed * 1_000_003 + number + warm_up),
        ).tolist()
        for system in unit.systems:
            _wait(bench.device)
            began = time.perf_counter()
            if system.startswith("refinement"):
                steps = int(system.split()[1])
                passes = _refined(parallel, source, target, steps, unit.lengths, rng)
            else:
                beams = unit.beams if system == BEAM else 1
                passes = _searched(causal, source, target, beams)
            _wait(bench.device)
            seconds = time.perf_counter() - began
            if number >= 0:
                yield Timed(
                    unit.seed,
                    number,
                    _device(bench.device),
                    parameters,
                    system,
                    target,
                    passes,
                    seconds,
                )


@torch.no_grad()
def _refined(
    net: EncoderDecoder,
    source: Sequence[int],
    target: int,
    steps: int,
    each: int,
    rng: TorchRng,
) -> int:
    """Refine hypotheses of `each` lengths around the target; the passes of the decoder."""
    encoded = encode(net, [source])
    around = net.likely_lengths(encoded, each).flatten()  # predicted, and then set
    lengths = target + torch.arange(len(around), device=around.device) - len(around) // 2
    lengths = lengths.clamp(1, net.shape.length)
    encoded = encoded.rows(torch.zeros_like(lengths))
    out = refine(
        SourceRefiner(net, encoded),
        first_hypotheses(lengths, net.shape.vocab_size, "random", rng),
        lengths,
        steps=steps,
        stop_when_stable=False,
        lowest=FIRST_WORD,
        rng=rng,
    )
    best = best_hypotheses(out.log_probs, lengths, each=len(lengths))
    drop_stutter(out.tokens[best], lengths[best])[0].tolist()
    return out.costs.forward_passes


@torch.no_grad()
def _searched(net: EncoderDecoder, source: Sequence[int], target: int, beams: int) -> int:
    """Write as many tokens as the target has; the passes of the decoder."""
    decoder = SourceDecoder(net, encode(net, [source]), start_token=START)
    found = beam_search(decoder, beams=beams, length=[target], end_token=END, length_penalty=1.0)
    found.tokens[:, 0].tolist()
    return found.passes


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def _device(device: str) -> str:
    return torch.cuda.get_device_name() if device.startswith("cuda") else device


# ------------------------------------------------------------------ judge


def seconds_of(rows: Sequence[Timed], system: str) -> list[float]:
    """In the order of the sentences, so that two systems stand side by side."""
    own = [row for row in rows if row.system == system]
    return [row.seconds for row in sorted(own, key=lambda row: (row.seed, row.sentence))]


def judge(rows: Rows[Timed]) -> Verdict:
    """More than twice as fast at the median, more than five times at the 99th percentile."""
    timed = rows.of(Timed)
    on_gpu = [row for row in timed if not row.device.startswith(CPU)]
    beam = [row for row in on_gpu if row.system == BEAM]
    targets = [row.target for row in beam]
    average = sum(targets) / max(1, len(targets))
    like_published = PUBLISHED_MEANS[0] <= average <= PUBLISHED_MEANS[1]

    def faster(some: Sequence[Timed], system: str, than: str, at: float) -> Estimate:
        slow, fast = seconds_of(some, than), seconds_of(some, system)
        if not slow or len(slow) != len(fast):
            return Estimate(float("nan"), float("nan"), float("nan"), 0)
        return Estimate(*speedup(slow, fast, at), len(slow))

    sentence = "GPU: times as fast as beam search with 5 beams, refinement with 4 steps, {}"
    return decide(
        above(sentence.format("median"), faster(on_gpu, REFINED, BEAM, 0.5), 2.0),
        above(sentence.format("99th percentile"), faster(on_gpu, REFINED, BEAM, 0.99), 5.0),
        *(
            shown(
                f"{place}: times as fast as {than}, {system}, {name}",
                faster(some, system, than, at),
            )
            for place, some in (("GPU", on_gpu), ("CPU", [r for r in timed if r not in on_gpu]))
            for system in SYSTEMS[:2]
            for than in SYSTEMS[2:]
            for name, at in (("median", 0.5), ("99th percentile", 0.99))
            if (place, system, than) != ("GPU", REFINED, BEAM)
            and seconds_of(some, system)
            and seconds_of(some, than)
        ),
        *(
            [
                shown("tokens of a target, mean (published: 28 to 33)", float(average)),
                shown("tokens of a target, 99th percentile", float(np.quantile(targets, 0.99))),
                shown("parameters, million (published: 67)", beam[0].parameters / 1e6),
            ]
            if beam
            else []
        ),
        needs=[
            at_least(
                f"sentences timed on a GPU, of {PUBLISHED_MEANS[0]} to {PUBLISHED_MEANS[1]} "
                "tokens on average",
                len(beam) if like_published else 0,
                TIMED,
            ),
            at_least(
                "million parameters, the fewest",
                min((row.parameters for row in beam), default=0) // 1_000_000,
                MILLION,
            ),
        ],
    )


def latency_figure(rows: Rows[Timed]) -> Figure:
    """Milliseconds of a sentence by the tokens of its target."""
    panels = []
    for device in dict.fromkeys(row.device for row in rows):
        series = []
        for system in SYSTEMS:
            own = [r for r in rows if (r.device, r.system) == (device, system)]
            groups: dict[int, list[float]] = {}
            for row in own:
                groups.setdefault(10 * (row.target // 10) + 5, []).append(1000 * row.seconds)
            places = sorted(groups)
            middle = [float(np.median(groups[at])) for at in places]
            kind = "ours" if system.startswith("refinement") else "control"
            if places:
                series.append(Series(system, kind, places, middle))
        panels.append(Panel(series, "tokens of the target", "milliseconds", device))
    return Figure(
        "translation_latency_by_length",
        "Time for one sentence by the length of its translation",
        panels or [Panel([], "tokens of the target", "milliseconds")],
        "Networks of the published shape with their first weights, one sentence at a time. Medians "
        "of targets in groups of ten tokens.",
    )


# ------------------------------------------------------------------ rows by hand


def _made(median: float, tail: float, count: int = TIMED) -> list[Timed]:
    """Refinement takes 1 s; beam search `median` for most sentences and `tail` for every 20th."""
    found = []
    for n in range(count):
        for system, seconds in ((REFINED, 1.0), (BEAM, tail if n % 20 == 0 else median)):
            found.append(Timed(0, n, "a GPU", 67_000_000, system, 31, 4, seconds))
    return found


STUDY = Study(
    name="translation_speed",
    question="How much faster is refinement than beam search, at the published size and lengths?",
    settings={
        Scale.SMOKE: TranslationSpeed(
            seeds=1,
            sentences=2,
            vocabulary=50,
            length=64,
            width=16,
            layers=1,
            heads=2,
            feedforward=16,
        ),
        Scale.LAPTOP: TranslationSpeed(seeds=1, sentences=3),
        Scale.PAPER: TranslationSpeed(),
    },
    units=units,
    run=run,
    rows=(Timed,),
    claims=[
        Claim(
            "li.padir-speed",
            judge,
            refuted_by=[_made(1.0, 1.0), _made(1.0, 7.0), _made(3.0, 3.0)],
            held_by=_made(3.0, 7.0),
        )
    ],
    figures=[latency_figure],
)
