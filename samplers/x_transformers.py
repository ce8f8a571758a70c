"""x-transformers: filters of its autoregressive wrapper, and masks unveiled by confidence."""

import functools
import itertools
from typing import Any

import torch

from samplers import definitions
from samplers.record import Case, Shelf

SHELF = Shelf("x-transformers")

FLOAT32 = 1e-5
VOCABULARY = 6


@functools.cache
def _decoder() -> Any:
    from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

    torch.manual_seed(0)
    net = TransformerWrapper(
        num_tokens=VOCABULARY,
        max_seq_len=8,
        attn_layers=Decoder(dim=8, depth=1, heads=1, attn_dim_head=8),
    ).eval()
    with torch.no_grad():
        net.to_logits.weight.mul_(0.7)
    return AutoregressiveWrapper(net)


def _next() -> definitions.Law:
    with torch.no_grad():
        return definitions.softmax(_decoder().net(torch.tensor([[1, 2]]))[0, -1].double().tolist())


def _generate(name: str, law: definitions.Law, **options: Any) -> Case:
    wrapper, prompt = _decoder(), torch.tensor([[1, 2]])

    def program() -> int:
        return int(wrapper.generate(prompt, 1, filter_logits_fn=name, filter_kwargs=options))

    return Case(program, law)


@SHELF.add(
    "AutoregressiveWrapper.generate, top_p",
    promise="nucleus",
    source="comment over top_p",
    note="six tokens, thres 0.7",
    rounding=FLOAT32,
)
def top_p() -> Case:
    return _generate("top_p", definitions.nucleus(_next(), 0.7), thres=0.7)


@SHELF.add(
    "AutoregressiveWrapper.generate, top_k",
    promise="topk",
    source="comment over top_k",
    note="k = 3 of six tokens",
    rounding=FLOAT32,
)
def top_k() -> Case:
    return _generate("top_k", definitions.top_k(_next(), 3), k=3)


@SHELF.add(
    "AutoregressiveWrapper.generate, min_p",
    promise="https://arxiv.org/abs/2407.01082",
    source="comment over min_p",
    note="min_p 0.4",
    rounding=FLOAT32,
)
def min_p() -> Case:
    return _generate("min_p", definitions.min_p(_next(), 0.4), min_p=0.4)


@SHELF.add(
    "AutoregressiveWrapper.generate, top_a",
    promise="top_a",
    source="comment over top_a; p >= ratio * max ** power, as its arguments say",
    note="power 2, ratio 0.4",
    rounding=FLOAT32,
)
def top_a() -> Case:
    return _generate("top_a", definitions.top_a(_next(), 0.4, 2.0), min_p_pow=2.0, min_p_ratio=0.4)


@SHELF.add(
    "gumbel_sample",
    promise="gumbel_sample(logits, temperature = 1.",
    source="signature; the argmax of Gumbel keys has the law softmax(logits / temperature)",
    note="three tokens at temperature 0.7",
    rounding=FLOAT32,
)
def gumbel() -> Case:
    from x_transformers.autoregressive_wrapper import gumbel_sample

    logits = torch.tensor([0.5, -0.3, 0.9], dtype=torch.float64)
    return Case(
        lambda: int(gumbel_sample(logits, temperature=0.7)),
        definitions.softmax(logits.tolist(), 0.7),
    )


@SHELF.add(
    "NonAutoregressiveWrapper.generate",
    promise="https://arxiv.org/abs/2202.04200",
    source="docstring of NonAutoregressiveWrapper, which cites Mask-Predict and MaskGIT",
    note="two places, two steps: the less confident place is drawn again, given the other. "
    "Held against this description, not against the network's joint law, which MaskGIT does not promise",
    rounding=1e-3,
)
def unmasking() -> Case:
    from x_transformers import Encoder, NonAutoregressiveWrapper, TransformerWrapper

    torch.manual_seed(1)
    tokens, mask, places = 3, 2, 2  # the mask is a token of the network, and can be drawn
    hot, cold = (
        0.002,
        0.001,
    )  # temperatures of the two steps; the second is the least that the code allows
    net = TransformerWrapper(
        num_tokens=tokens,
        max_seq_len=places,
        attn_layers=Encoder(dim=8, depth=1, heads=1, attn_dim_head=8),
    ).eval()
    with torch.no_grad():
        net.to_logits.weight.mul_(0.002)
    wrapper = NonAutoregressiveWrapper(net, mask_id=mask, steps=2)

    def program() -> tuple[int, ...]:
        return tuple(wrapper.generate(filter_thres=None, start_temperature=2 * hot).tolist())

    def answers(seen: tuple[int, ...]) -> list[list[float]]:
        with torch.no_grad():
            return net(torch.tensor([seen]))[0].double().tolist()

    first = answers((mask,) * places)
    target: definitions.Law = {}
    early = [definitions.softmax(row, hot) for row in first]
    plain = [definitions.softmax(row) for row in first]
    for drawn in itertools.product(range(tokens), repeat=places):
        p = early[0][drawn[0]] * early[1][drawn[1]]
        redrawn = min(range(places), key=lambda i: plain[i][drawn[i]])
        seen = tuple(mask if i == redrawn else x for i, x in enumerate(drawn))
        for again, q in definitions.softmax(answers(seen)[redrawn], cold).items():
            after = tuple(again if i == redrawn else x for i, x in enumerate(drawn))
            target[after] = target.get(after, 0.0) + p * q
    return Case(program, target)
