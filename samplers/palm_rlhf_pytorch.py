"""PaLM-rlhf-pytorch: filters and Gumbel sampling."""

import torch

from samplers import definitions
from samplers.record import Case, Shelf

SHELF = Shelf("PaLM-rlhf-pytorch")

LOGITS = [0.4, 1.3, -0.2, 0.9, 0.1]


@SHELF.add(
    "top_k and gumbel_sample",
    promise="top_k(logits, thres = 0.9)",
    source="signature; it keeps the ceil((1 - thres) * tokens) best",
    note="five tokens, thres 0.5, temperature 1",
    rounding=1e-5,
)
def top_k() -> Case:
    from palm_rlhf_pytorch.utils import gumbel_sample
    from palm_rlhf_pytorch.utils import top_k as keep

    logits = torch.tensor([LOGITS], dtype=torch.float64)
    return Case(
        lambda: int(gumbel_sample(keep(logits.clone(), thres=0.5))),
        definitions.top_k(definitions.softmax(LOGITS), 3),
    )


@SHELF.add(
    "top_p and gumbel_sample",
    promise="top_p(logits, thres = 0.9)",
    source="signature; a name of the field",
    note="thres is the mass that goes, not the mass that stays: thres 0.3 is held against a nucleus of 0.7. "
    "Its default of 0.9 is a nucleus of 0.1",
    rounding=1e-5,
)
def top_p() -> Case:
    from palm_rlhf_pytorch.utils import gumbel_sample
    from palm_rlhf_pytorch.utils import top_p as keep

    logits = torch.tensor([LOGITS], dtype=torch.float64)
    return Case(
        lambda: int(gumbel_sample(keep(logits.clone(), thres=0.3))),
        definitions.nucleus(definitions.softmax(LOGITS), 0.7),
    )
