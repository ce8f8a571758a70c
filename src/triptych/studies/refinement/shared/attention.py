"""Attention of adjacent positions that stutter, against adjacent positions that do not.

For every pair of neighbours in a generated sentence, in the last layer of the pass that wrote it:

    self-attention    from each of the two to the other, and whether the other is in its top k
    cross-attention   total variation and cosine distance of the two distributions over source
                      tokens, and whether their top k source tokens overlap

Distances and scores are taken per head; `min`, `avg` and `max` are over the heads. The share of
pairs with a top-k overlap is a mean over heads and pairs [li, Tables 4.4 and 4.5].
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.randomness import TorchRng
from triptych.models.encoder_decoder import EncoderDecoder
from triptych.studies.refinement.shared.translating import Refinement, refine_batch

MEASURES = (
    "self_min",
    "self_avg",
    "self_max",
    "self_top1",
    "self_top2",
    "tv_min",
    "tv_avg",
    "tv_max",
    "cosine_min",
    "cosine_avg",
    "cosine_max",
    "cross_top1",
    "cross_top2",
)


@dataclass
class Sums:
    """count, Σ v and Σ v² of every measure, of stuttering pairs and of the others."""

    count: dict[str, float]
    total: dict[str, float]
    square: dict[str, float]

    @classmethod
    def empty(cls) -> "Sums":
        zeros = dict.fromkeys(MEASURES, 0.0)
        return cls({**zeros}, {**zeros}, {**zeros})

    def add(self, values: dict[str, Float[Tensor, "..."]]) -> None:
        for name, each in values.items():
            each = each.double()
            self.count[name] += each.numel()
            self.total[name] += each.sum().item()
            self.square[name] += each.square().sum().item()

    def as_dict(self) -> dict[str, dict[str, float]]:
        return {each.name: getattr(self, each.name) for each in fields(self)}


def pair_values(
    own: Float[Tensor, "batch heads t t"], cross: Float[Tensor, "batch heads t source"]
) -> dict[str, Float[Tensor, "batch pairs directions"]]:
    """Every measure of the neighbours (i, i+1), both directions where there are two.

    Worked value: two heads whose cross-attention at i is (1, 0) and (½, ½) and at i+1 (0, 1) and
    (½, ½): total variations 1 and 0, so min 0, avg ½, max 1.
    """
    forth, back = own.diagonal(1, -2, -1), own.diagonal(-1, -2, -1)  # batch, heads, pairs
    scores = torch.stack([forth, back], -1)
    first, second = cross[:, :, :-1], cross[:, :, 1:]
    variation = (first - second).abs().sum(-1)[..., None] / 2
    cosine = 1 - torch.nn.functional.cosine_similarity(first, second, dim=-1)[..., None]
    values = {}
    for name, each in (("self", scores), ("tv", variation), ("cosine", cosine)):
        values |= {f"{name}_min": each.amin(1), f"{name}_max": each.amax(1)}
        values[f"{name}_avg"] = each.mean(1)
    at = torch.arange(own.shape[-1], device=own.device)[:, None]
    for k in (1, 2):
        top = own.topk(min(k, own.shape[-1]), dim=-1).indices
        to_next = (top == at + 1).any(-1)[:, :, :-1]
        to_last = (top == at - 1).any(-1)[:, :, 1:]
        values[f"self_top{k}"] = torch.stack([to_next, to_last], -1).double().mean(1)
        tops = cross.topk(min(k, cross.shape[-1]), dim=-1).indices
        shared = tops[:, :, :-1, :, None] == tops[:, :, 1:, None, :]
        values[f"cross_top{k}"] = shared.flatten(-2).any(-1).double().mean(1)[..., None]
    return values


def last_pass(
    hypotheses: Sequence[Int[Tensor, "rows length"]], active: Sequence[Bool[Tensor, " rows"]]
) -> Int[Tensor, "rows length"]:
    """What each row was made from in the last pass that it took part in."""
    read = hypotheses[0].clone()
    for tokens, took_part in zip(hypotheses, active, strict=True):
        read[took_part] = tokens[took_part]
    return read


@torch.no_grad()
def measure_attention(
    net: EncoderDecoder,
    sources: Sequence[Sequence[int]],
    how: Refinement,
    rng: TorchRng,
    *,
    batch: int = 200,
) -> dict[str, dict[str, dict[str, float]]]:
    """Sums of every measure over the translations of these sources, for stutter "yes" and "no"."""
    sums = {"yes": Sums.empty(), "no": Sums.empty()}
    for first in range(0, len(sources), batch):
        done = refine_batch(net, sources[first : first + batch], how, rng, record=True)
        trace = done.refined.trace
        read = last_pass([each.hypotheses for each in trace], [each.active for each in trace])
        best = done.best
        lengths, tokens = done.lengths[best], done.refined.tokens[best]
        seen = net.inspect(read[best], done.encoded.rows(best), lengths)
        values = pair_values(seen.own.float(), seen.cross.float())
        equal = tokens[:, 1:] == tokens[:, :-1]
        inside = torch.arange(1, tokens.shape[1], device=tokens.device) < lengths[:, None]
        for name, chosen in (("yes", equal & inside), ("no", ~equal & inside)):
            sums[name].add({measure: each[chosen] for measure, each in values.items()})
    return {name: each.as_dict() for name, each in sums.items()}
