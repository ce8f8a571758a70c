"""How diverse the completions of a model without error are: the exact law of brackets itself.

Table 3.5 counts distinct completions among ten. How many there can be depends on the prompts: with
few tokens to go and most of them forced, even the law that was trained on repeats itself.

    distinct(prompt) = Σ_y 1 - (1 - p(y | prompt))^n,   averaged over the law of the prompts

The law of the completions y depends on the length N and the depth d of the prompt alone: the types
of its open brackets say which closings are right, not how likely they are.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from triptych.inference.guided.transforms import nucleus
from triptych.structures.brackets.dyck import Dyck
from triptych.structures.brackets.moves import CLOSE, END, OPEN


def perfect_diversity(
    law: Dyck, *, shortest: int, longest: int, draws: int, top_p: float = 1.0
) -> float:
    """Expected distinct completions among `draws`, over prompts of shortest..longest tokens.

    Prompts may have other bracket types than the law: depths do not depend on them.
    """
    total = 0.0
    for length in range(shortest, longest + 1):
        for depth, chance in enumerate(depth_law(law, length).tolist()):
            if chance > 0:
                probs = completion_probs(law, length, depth, top_p)
                total += chance * float((1 - (1 - probs).clamp(min=0.0) ** draws).sum())
    return total / (longest - shortest + 1)


def depth_law(law: Dyck, length: int) -> Float[Tensor, " depths"]:
    """P(d brackets are open after `length` tokens).

    Worked value: strings of 4 brackets, q = ¼. After 2 tokens the depth is 2 with probability ¼.
    """
    chance = torch.zeros(law.max_depth + 1, dtype=torch.float64, device=law.device)
    chance[0] = 1.0
    for t in range(length):
        opened, closed = chance * law.moves[t, :, OPEN], chance * law.moves[t, :, CLOSE]
        chance = torch.zeros_like(chance)
        chance[1:] += opened[:-1]
        chance[:-1] += closed[1:]
    return chance


def completion_probs(
    law: Dyck, length: int, depth: int, top_p: float = 1.0
) -> Float[Tensor, " completions"]:
    """p(y | prompt) of every completion y of a prompt of this length and depth.

    Worked value: strings of 4 brackets of two types with probabilities ¼ and ¾, q = ½. From depth 1
    after one token: close, then "[]" or "()", have ½·¼ and ½·¾; "[" or "(", then two closings, the
    same.
    """
    keep = nucleus(top_p)
    log_probs = torch.zeros(1, dtype=torch.float64, device=law.device)
    depths = torch.full((1,), depth, device=law.device)
    change = torch.tensor(
        [1] * law.types + [-1, 0], device=law.device
    )  # open each type, close, end
    for t in range(length, law.length):
        moves = law.moves[t]
        opened = moves[:, OPEN, None] * law.type_probs
        step = keep(torch.cat([opened, moves[:, [CLOSE, END]]], dim=1).log())
        longer = log_probs[:, None] + step[depths]
        rows, move = torch.nonzero(longer > -torch.inf, as_tuple=True)
        log_probs, depths = longer[rows, move], depths[rows] + change[move]
    return log_probs.exp()
