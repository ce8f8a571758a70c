"""Rows made by hand: those for which each claim holds, and those that break one check alone."""

from typing import Any

from triptych.studies.refinement.translation_pairs.rows import Gap, Left, Row, Scored

_SIZES = (20_000, 40_000, 80_000, 160_000, 310_000)


def _runs(gaps: list[float], brevity: list[float]) -> list[Row]:
    """Gaps and factors at the five sizes, for two seeds that differ by a tenth of a point."""
    found: list[Row] = []
    for pairs, gap, factor in zip(_SIZES, gaps, brevity, strict=True):
        for seed in (0, 1):
            run: dict[str, Any] = {
                "data": "software",
                "direction": "en-de",
                "seed": seed,
                "pairs": pairs,
                "on": "test",
            }
            value = gap + 0.1 * seed
            found.append(Gap(**run, steps=4, difference=value, low=value - 0.8, high=value + 0.8))
            found.append(Scored(**run, system="T=4", bleu=20.0, brevity=factor + 0.001 * seed))
    return found


_CLOSING, _LONGER = [-8.0, -7.0, -6.0, -5.0, -4.0], [0.80, 0.83, 0.86, 0.89, 0.92]
GAP_HELD = _runs(_CLOSING, _LONGER)
GAP_REFUTED = [
    _runs(_CLOSING[::-1], _LONGER),
    _runs(_CLOSING, _LONGER[::-1]),
    _runs(_CLOSING[::-1], _LONGER[::-1]),
]


def _left(*, loss: float = 0.0, mixed: float = 0.0, beam: float = 0.0) -> list[Row]:
    """Three numbers of pairs; with an error of the loss, growing mixtures, or a beam that mixes."""
    return [
        Left(
            world="orders",
            clues=100,
            pairs=pairs,
            unseen=u,
            total_correlation=1.2 * u,
            one_step_kl=1.2 * u + loss,
            mixed=(0.5 * u, 0.4 * u, 0.2 * u + mixed * (1 - u), 0.2 * u),
            left_to_right=beam,
        )
        for pairs, u in ((10, 0.5), (20, 0.4), (40, 0.3))
    ]


LEFT_HELD = _left()
LEFT_REFUTED = [_left(loss=0.1), _left(mixed=1.0), _left(beam=0.1)]
