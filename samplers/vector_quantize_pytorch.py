"""vector-quantize-pytorch: codes drawn with Gumbel noise."""

import torch

from samplers import definitions
from samplers.record import Case, Shelf

SHELF = Shelf("vector-quantize-pytorch")


@SHELF.add(
    "gumbel_sample, stochastic",
    promise="gumbel_sample( logits, temperature = 1., stochastic = False",
    source="signature; the argmax of Gumbel keys has the law softmax(logits / temperature)",
    note="three codes at temperature 0.7",
    rounding=1e-5,
)
def gumbel() -> Case:
    from vector_quantize_pytorch.vector_quantize_pytorch import gumbel_sample

    logits = torch.tensor([0.5, -0.3, 0.9], dtype=torch.float64)
    return Case(
        lambda: int(gumbel_sample(logits, temperature=0.7, stochastic=True)[0]),
        definitions.softmax(logits.tolist(), 0.7),
    )
