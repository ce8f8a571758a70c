"""The table of samplers: promise, passes, and how far each is from a small truth, exactly.

The truth is three bits of a chain that stays with 0.9: eight texts, 0.74 nats of total correlation.
Samplers of masks and of noise levels know it; those that do not say how noisy a canvas is are given
the law of each position given the others.
"""

from typing import NamedTuple

from triptych.core.table import Table, all_sequences
from triptych.diffusion.denoiser import Denoiser, RefinerDenoiser, as_denoiser
from triptych.diffusion.law import sampler_law
from triptych.diffusion.sampler import Keeps, Sampler, blank, samplers
from triptych.inference.chains.refinement import MaskedRefiner

LENGTH, STAYS = 3, 0.9
FEW, MORE = 2, 6


class Line(NamedTuple):
    """One sampler.

    few, more   total variation distance to the truth in 2 and in 6 steps; the same number twice for
                a sampler that has no steps
    passes      forward passes of 64 rows in 6 steps
    """

    name: str
    title: str
    promise: str
    keeps: Keeps
    when: str
    source: str
    few: float
    more: float
    passes: int


def truth() -> Table:
    """p(x) = ½ Π 0.9^[x_i = x_i-1] 0.1^[x_i ≠ x_i-1].

    Worked value: 000 has 0.405, 010 has 0.005.
    """
    texts = all_sequences(2, LENGTH)
    same = (texts[:, 1:] == texts[:, :-1]).double()
    return Table(2, LENGTH, (0.5 * (same * STAYS + (1 - same) * (1 - STAYS)).prod(-1)).log())


def in_steps(kind: type[Sampler], steps: int) -> Sampler:
    """The sampler with so many steps, if it has steps."""
    has = any(option.name == "steps" for option in kind.options())
    return kind.of({"steps": steps} if has else {})


def model_of(kind: type[Sampler]) -> Denoiser:
    """The truth as this sampler can read it."""
    if kind.noise == "uniform" and not any(o.name == "schedule" for o in kind.options()):
        return RefinerDenoiser(MaskedRefiner(truth()), 2)
    return as_denoiser(truth())


def line(kind: type[Sampler]) -> Line:
    """What the table says of a sampler."""
    model, target = model_of(kind), truth().as_dict()
    few, more = (
        sampler_law(in_steps(kind, steps), model, *blank(1, LENGTH)).total_variation(target)
        for steps in (FEW, MORE)
    )
    batch = in_steps(kind, MORE).sample(model, *blank(64, LENGTH), rng=0)
    return Line(
        kind.name,
        kind.title,
        kind.promise,
        kind.keeps,
        kind.when,
        kind.source,
        few,
        more,
        batch.costs.forward_passes,
    )


def lines() -> list[Line]:
    """All samplers, those that keep the law first."""
    order = ("always", "one position a round", "as steps grow", "no")
    found = [line(kind) for kind in samplers().values()]
    return sorted(found, key=lambda each: (order.index(each.keeps), each.name))


def plain(found: list[Line]) -> list[str]:
    """The table for a terminal: two lines for each sampler."""
    text = [
        f"Exact distance to three bits of a chain that stays with {STAYS}, in {FEW} and {MORE} "
        f"steps; passes of 64 rows in {MORE} steps.",
        "",
        f"{'sampler':<26}{'off, ' + str(FEW):>8}{'off, ' + str(MORE):>8}{'passes':>8}  promise",
    ]
    for one in found:
        text.append(f"{one.name:<26}{one.few:>8.3f}{one.more:>8.3f}{one.passes:>8}  {one.promise}")
        text.append(f"{'':<52}{one.when}")
    return text


def markdown(found: list[Line]) -> str:
    """The table as docs/diffusion.md has it."""
    head = [
        f"| sampler | promise | off in {FEW} steps | in {MORE} | passes | when to take it |",
        "|---|---|---|---|---|---|",
    ]
    rows = [
        f"| `{one.name}` {one.title} | {one.promise} | {one.few:.3f} | {one.more:.3f} "
        f"| {one.passes} | {one.when} |"
        for one in found
    ]
    return "\n".join([*head, *rows])
