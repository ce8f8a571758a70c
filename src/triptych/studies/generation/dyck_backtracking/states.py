"""What the network's states tell about its mistakes: the probe, and Figure 3.1 [li, 3.2.1.2 and
3.2.1.6].

The thesis sets wrong strings against correct ones of the same lengths, which end in other tokens:
the network errs more on brackets that are rare in the prompts. How much of the difference is the
last token's own is told by two controls: the best guess from that token alone, and correct strings
that end in the same token.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.randomness import TorchRng
from triptych.studies.generation.dyck_backtracking.rows import OneNetwork, Picture, Verifier
from triptych.studies.generation.shared.completions import (
    Mistakes,
    correct_like,
    correct_with_same_end,
    last_tokens,
    states_of,
)
from triptych.studies.generation.shared.neighbours import (
    agreement_by_chance,
    clusters_holding,
    neighbour_agreement,
)
from triptych.studies.generation.shared.trained_dyck import Trained
from triptych.studies.generation.shared.tsne import tsne
from triptych.verifiers.probe import Probe, split_score

FEWEST = 4  # strings of a kind that make a picture


def fit_probe(
    unit: OneNetwork, model: Trained, wrong: Mistakes, rng: TorchRng, same_end: TorchRng
) -> tuple[Probe, list[Verifier | Picture]]:
    """The verifier of Algorithm 1, and the rows about it."""
    right = correct_like(wrong, model.ood, rng)
    partners = correct_with_same_end(wrong, model.ood, same_end)
    of_wrong, of_right = (states_of(model.lm, s) for s in (wrong.tokens, right))
    states, correct = both_kinds(of_wrong, of_right)
    found: list[Verifier | Picture] = []
    paired, of_partners = of_wrong[:0], of_wrong[:0]
    if len(partners.found):
        paired, of_partners = of_wrong[partners.found], states_of(model.lm, partners.tokens)
    enough = len(paired) >= FEWEST
    last = last_tokens(wrong._replace(tokens=right))
    found.append(
        Verifier(
            seed=unit.seed,
            layers=unit.layers,
            width=unit.width,
            strings=len(states),
            held_out=_held_out(unit, len(states)),
            accuracies=_split_scores(unit, of_wrong, of_right),
            last_token_accuracy=best_guess(last_tokens(wrong), last),
            same_end_strings=2 * len(paired),
            same_end_accuracies=_split_scores(unit, paired, of_partners) if enough else (),
        )
    )
    if enough:
        without = len(wrong.tokens) - len(paired)
        found.append(_picture(unit, paired, of_partners, without))
    return Probe.fit(states, correct, layer=model.lm.net.shape.layers), found


def both_kinds(
    wrong: Float[Tensor, "wrong width"], right: Float[Tensor, "right width"]
) -> tuple[Float[Tensor, "both width"], Bool[Tensor, " both"]]:
    """All states, and which are those of correct strings."""
    states = torch.cat([wrong, right])
    return states, torch.arange(len(states), device=states.device) >= len(wrong)


def best_guess(wrong: Int[Tensor, " wrong"], right: Int[Tensor, " right"]) -> float:
    """How often the likelier kind of each token is the right one.

    Worked value: wrong strings end in 3, 3, 1 and correct ones in 1, 1, 0. Saying wrong to 3 and
    correct to 0 and 1 is right 5 times of 6.
    """
    tokens = int(torch.cat([wrong, right]).max()) + 1
    counts = torch.stack([torch.bincount(kind, minlength=tokens) for kind in (wrong, right)])
    return int(counts.amax(0).sum()) / int(counts.sum())


def _held_out(unit: OneNetwork, strings: int) -> int:
    return max(2, round(unit.held_out * strings))


def _split_scores(
    unit: OneNetwork, wrong: Float[Tensor, "wrong width"], right: Float[Tensor, "right width"]
) -> tuple[float, ...]:
    states, correct = both_kinds(wrong, right)
    train = len(states) - _held_out(unit, len(states))
    return tuple(split_score(states, correct, train=train, repetitions=unit.splits).tolist())


def _picture(
    unit: OneNetwork,
    wrong: Float[Tensor, "pairs width"],
    right: Float[Tensor, "pairs width"],
    without_partner: int,
) -> Picture:
    """t-SNE of both kinds of strings, how far neighbours are of one kind, and the clusters."""
    some = min(len(wrong), unit.pictured)
    states, correct = both_kinds(wrong[:some].double(), right[:some].double())
    plane = tsne(states, perplexity=min(30.0, some / 2))
    near = min(10, some // 2)
    return Picture(
        seed=unit.seed,
        points=tuple((round(x, 2), round(y, 2)) for x, y in plane.tolist()),
        correct=tuple(correct.long().tolist()),
        agreement=neighbour_agreement(plane, correct, neighbours=near),
        agreement_by_chance=agreement_by_chance(plane, correct, neighbours=near),
        agreement_of_states=neighbour_agreement(states, correct, neighbours=near),
        clusters=clusters_holding(plane[:some], neighbours=near),
        clusters_of_correct=clusters_holding(plane[some:], neighbours=near),
        clusters_of_states=clusters_holding(states[:some], neighbours=near),
        without_partner=without_partner,
    )
