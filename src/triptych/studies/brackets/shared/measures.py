"""What is measured on a trained bracket network: accuracy, patterns, balance [li, 2.2.3]."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.table import all_sequences
from triptych.models.constructions.brackets import Encoding
from triptych.models.language_models import CausalLM
from triptych.models.layers import Block
from triptych.models.transformer import AttentionChoice
from triptych.studies.brackets.shared.networks import Language, minimal_layer
from triptych.theory.brackets.balance import Attention, pair_effects, prefix_effect
from triptych.theory.brackets.patterns import partners

SURE = 0.8  # the authors' rule: so much of the closing mass is on the right bracket


class Accuracy(NamedTuple):
    """Shares of positions, over all strings.

    best    the right closing bracket is the likeliest of the closing ones, where one closes
    sure    it has more than 0.8 of their mass, wherever a bracket is open: the authors' rule
    """

    best: float
    sure: float


def innermost(tokens: Int[Tensor, "batch t"], types: int, max_depth: int) -> Int[Tensor, "batch t"]:
    """The type of the innermost open bracket before every token, -1 where none is open.

    Worked value: "[()]" has -1, 0, 1, 0.
    """
    stack = torch.full((len(tokens), max_depth + 1), -1, device=tokens.device)
    depth = torch.zeros(len(tokens), dtype=torch.long, device=tokens.device)
    found = []
    for token in tokens.T:
        found.append(stack.gather(1, depth[:, None])[:, 0])
        bracket = token < 2 * types
        opens, closes = bracket & (token % 2 == 0), bracket & (token % 2 == 1)
        depth = depth + opens.long() - closes.long()
        top = torch.where(opens, token // 2, stack.gather(1, depth[:, None])[:, 0])
        stack = stack.scatter(1, depth[:, None], top[:, None])
    return torch.stack(found, 1)


@torch.no_grad()
def accuracy(
    model: CausalLM, tokens: Int[Tensor, "batch t"], language: Language, *, first: int = 0
) -> Accuracy:
    """Measures of predictions of the tokens number first, first + 1, …"""
    types = language.types
    wanted = innermost(tokens.cpu(), types, language.max_depth)[:, first:].to(tokens.device)
    closing = model.token_logits(tokens)[:, first:, 1 : 2 * types : 2].softmax(-1)
    right = closing.gather(-1, wanted.clamp(min=0)[..., None])[..., 0]
    opened = wanted >= 0
    closes = opened & (tokens[:, first:] % 2 == 1) & (tokens[:, first:] < 2 * types)
    best = (closing.argmax(-1) == wanted) & closes
    sure = (right > SURE) & opened
    return Accuracy(
        float(best.sum() / closes.sum().clamp(min=1)), float(sure.sum() / opened.sum().clamp(min=1))
    )


@torch.no_grad()
def patterns(
    model: CausalLM, tokens: Int[Tensor, "batch t"], attention: AttentionChoice = "learned"
) -> Sequence[Float[Tensor, "batch n n"]]:
    """The pattern of every layer, of its one head; position 0 is the start token."""
    started = torch.nn.functional.pad(tokens, (1, 0), value=model.start_token)
    if model.first_layer is None:
        seen = model.net.inspect(started, attention=attention)
    else:
        seen = model.net.inspect(vectors=model.first_layer(started), attention=attention)
    return [pattern[:, 0] for pattern in seen.patterns]


@torch.no_grad()
def attention_of(model: CausalLM, language: Language, encoding: Encoding) -> Attention:
    """The attention of a network with a minimal first layer, as the theory sees it, on the CPU."""
    block = model.net.blocks[0]
    assert isinstance(block, Block)
    e = minimal_layer(language, encoding, model.net.shape.width).to(model.net.device)
    layer = block.attention
    values = layer.value(e).double()
    return Attention(
        language.types,
        language.max_depth,
        (layer.scale * layer.key(e) @ layer.query(e).T).double().cpu(),
        (values - values.mean(-1, keepdim=True)).cpu(),
    )


def programmed_violation(attention: Attention) -> float:
    """The mean over queries (j, d), d = 2 … D, of max ‖S[i, d', j, d]‖ / min ‖Q(j, d, t)‖.

    The authors' code: the worst pair (i, d') and the least prefix t, where the formula has the mean
    over pairs and the least prefix but one, which ends in another bracket [li, 2.2.3.3, (2.53)].
    Worked value: with uniform attention and W_V = 1 in one dimension, values 3 and -1 of all
    brackets and 1 of the start token, S is 2 and Q is 1 + 3 + 2 for d = 2: the violation is 1/3.
    """
    sizes = pair_effects(attention).norm(dim=-1).amax((0, 1))  # of the query (j, d)
    found = []
    for kind in range(attention.types):
        for level in range(2, attention.max_depth + 1):
            stacks = all_sequences(attention.types, level - 1)
            least = prefix_effect(attention, kind, level, stacks).norm(dim=1).min()
            found.append(float(sizes[kind, level - 1] / least))
    return sum(found) / len(found)


class StackReadings(NamedTuple):
    """Over the closing brackets of some sentences that leave a bracket open.

    weight    mean weight on the innermost open bracket
    top       share where no position has more weight
    """

    weight: float
    top: float


def stack_readings(
    pattern: Float[Tensor, "batch n n"], tokens: Int[Tensor, "batch t"], types: int
) -> StackReadings:
    """How much a pattern is like a stack; position 0 is the start token.

    Worked value: "[()" with uniform attention has weight 1/4, and no position has more.
    """
    weights, tops = [], []
    rows, tokens = pattern.double().cpu(), tokens.cpu()  # many small questions: not for a GPU
    for sentence, places in enumerate(partners(tokens, types)):
        for place, partner in enumerate(places):
            if partner is not None and int(tokens[sentence, place]) % 2 == 1:
                row = rows[sentence, place + 1]
                weights.append(float(row[partner + 1]))
                tops.append(float(row[partner + 1] >= row.max()))
    count = max(1, len(weights))
    return StackReadings(sum(weights) / count, sum(tops) / count)
