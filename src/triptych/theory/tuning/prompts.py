"""Soft prompts on the exact masked LM: Lemmas B.1 and B.2 and Theorem 3.6 of [wei, 3.1 and B].

The chain is H_0, H_1, … with H_0 ~ `hmm.initial`, as in `heads`, and the task is the sign of
μᵀ P[H_0 | X_1:T = x]. The prompted model reads (u, ∅, x): a vector u in [0, 1]^states at H_1, a
masked token at H_2, and the tokens of x at H_3 … H_T+2.

Lemma B.1: u is the embedding of a token z̃ that only H_1 can emit, in the model X̂ with

    P[X̂_1 = z̃ | H_1] = u          P[X̂_1 = z | H_1] = (1 - u) ∘ P[X_1 = z | H_1]

and X̂_i like X_i afterwards: τ_i = P[H_i, X̂_-i] and G_i = W P[H_i | X̂_-i], or 0 where |τ_i| = 0.

Lemma B.2: with D = diag(1 / P[H_0]) and r_x = P[X_1:T = x] / P[X̂_1 = z̃, X̂_3:T+2 = x],

    P[H_2 | X̂_1 = z̃, X̂_3:T+2 = x] = r_x D (P[X̂_1 = z̃, H_2] ∘ P[H_0 | X_1:T = x]).

Theorem 3.6: u = 1_B makes P[z̃, H_2] live on the essential states H* that B reaches in one step.
When their emission columns are independent and H* ⊇ supp(μ), the head

    b = (μ / (D P[z̃, H_2]))_H*  (W_:,H*)⁺     has     b·G_2(u, ∅, x) = r_x μᵀ P[H_0 | x],

also when there are more states than tokens. Off the support of (z̃, x) both sides are exactly 0.

Notation
--------
u   prompt      [states]                 z̃   the token `vocab` of `fake_token_hmm`
b   head        [vocab]                  μ   task   [states]
B   chosen      [states], Bool           W   emissionᵀ, [vocab, states]: the paper's orientation
H*  essential   [states], Bool
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triptych.core.table import all_sequences
from triptych.core.validation import check_shape
from triptych.structures.hidden_markov import messages as chain
from triptych.structures.hidden_markov.hmm import HMM
from triptych.theory.conditions import Condition, Conditions
from triptych.theory.tuning import essential, heads

# ---------------------------------------------------------------- the embedding model


def soft_tokens(
    hmm: HMM, prompt: Float[Tensor, " states"], tokens: Int[Tensor, "batch t"]
) -> Float[Tensor, "batch t1 states"]:
    """(u, e(w_2), …, e(w_L)) for the tokens w that follow the prompt."""
    _check_prompt(hmm, prompt)
    return torch.cat([prompt.expand(len(tokens), 1, -1), hmm.embed(tokens)], 1)


def messages(
    hmm: HMM, prompt: Float[Tensor, " states"], tokens: Int[Tensor, "batch t"]
) -> chain.LeaveOneOut:
    """τ_i of [wei, (B.1)] at every position of (u, e(w)), as its direction and its mass."""
    first = _from_first_state(hmm)
    return chain.leave_one_out(first.initial, first.transition, soft_tokens(hmm, prompt, tokens))


def model(
    hmm: HMM, prompt: Float[Tensor, " states"], tokens: Int[Tensor, "batch t"]
) -> Float[Tensor, "batch t1 vocab"]:
    """G_i(u, e(w)) at every position; 0 where the other positions have probability 0."""
    return _from_first_state(hmm).soft_masked_probs(soft_tokens(hmm, prompt, tokens))


def masked_second(
    hmm: HMM, prompt: Float[Tensor, " states"], tokens: Int[Tensor, "batch t"]
) -> Float[Tensor, "batch vocab"]:
    """G_2(u, ∅, x), what the head of Theorem 3.6 reads."""
    return model(hmm, prompt, _with_gap(tokens))[:, 1]


# ---------------------------------------------------------------- Lemma B.1


class LeftOut(NamedTuple):
    """What the rest of a string says about a position i of X̂; 0 where the rest is impossible.

    log_mass[b, k]   = log P[X̂_-i] at the k-th position asked for, -inf where it is 0
    state[b, k, h]   = P[H_i = h | X̂_-i]
    token[b, k, z]   = P[X̂_i = z | X̂_-i], z̃ last
    """

    log_mass: Float[Tensor, "batch positions"]
    state: Float[Tensor, "batch positions states"]
    token: Float[Tensor, "batch positions symbols"]


def fake_token_hmm(hmm: HMM, prompt: Float[Tensor, " states"], length: int) -> HMM:
    """X̂ as an ordinary HMM: state h is position 1 in h, state |H| + h is a later position in h.

    Its last token is z̃. Emission that depends on the position is emission of a larger state, so
    every exact answer of `HMM` holds for X̂, without any soft token.
    """
    _check_prompt(hmm, prompt)
    states, nowhere = hmm.states, torch.zeros_like(hmm.transition)
    first = torch.cat([(1 - prompt)[:, None] * hmm.emission, prompt[:, None]], 1)
    later = torch.cat([hmm.emission, torch.zeros_like(prompt)[:, None]], 1)
    return HMM(
        torch.cat([_from_first_state(hmm).initial, hmm.initial.new_zeros(states)]),
        torch.cat([nowhere, hmm.transition], 1).repeat(2, 1),
        torch.cat([first, later]),
        length,
    )


def left_out(
    hmm: HMM,
    prompt: Float[Tensor, " states"],
    tokens: Int[Tensor, "batch t"],
    positions: Sequence[int],
) -> LeftOut:
    """Some positions of (z̃, w), each given all others, by inference in `fake_token_hmm`.

    Positions count from 1, where z̃ stands.
    """
    fake, strings = _after_fake_token(hmm, prompt, tokens)
    found = [_left_out_at(fake, strings, position) for position in positions]
    log_mass, state, token = (torch.stack(parts, 1) for parts in zip(*found, strict=True))
    return LeftOut(log_mass, state[..., : hmm.states] + state[..., hmm.states :], token)


def left_out_by_paths(
    hmm: HMM, prompt: Float[Tensor, " states"], tokens: Int[Tensor, "batch t"]
) -> LeftOut:
    """The same at every position, by the definition: a sum over all |H|^L hidden paths."""
    fake, strings = _after_fake_token(hmm, prompt, tokens)
    paths = all_sequences(hmm.states, fake.length, hmm.device)
    prior = (hmm.initial @ hmm.transition)[paths[:, 0]]
    for before, after in zip(paths.T[:-1], paths.T[1:], strict=True):
        prior = prior * hmm.transition[before, after]
    doubled = paths + hmm.states  # every position but the first is a later one
    doubled[:, 0] -= hmm.states
    shown = fake.emission[doubled[None], strings[:, None]]  # [batch, paths, position]
    joint = hmm.initial.new_zeros(*strings.shape, hmm.states)  # P[H_i, X̂_-i]
    for i in range(fake.length):
        others = [j for j in range(fake.length) if j != i]
        joint[:, i].index_add_(1, paths[:, i], prior * shown[:, :, others].prod(-1))
    mass = joint.sum(-1)
    state = joint / torch.where(mass > 0, mass, 1.0)[..., None]
    token = state @ fake.emission[hmm.states :]
    token[:, 0] = state[:, 0] @ fake.emission[: hmm.states]
    return LeftOut(mass.log(), state, token)


# ---------------------------------------------------------------- Lemma B.2


class Disentangled(NamedTuple):
    """Both sides of Lemma B.2; posterior, product and scale are 0 where (z̃, x) is impossible.

    posterior[b]   = P[H_2 | X̂_1 = z̃, X̂_3:T+2 = x], by inference in `fake_token_hmm`
    product[b]     = D (P[X̂_1 = z̃, H_2] ∘ P[H_0 | X_1:T = x])
    scale[b]       = r_x = P[X_1:T = x] / P[X̂_1 = z̃, X̂_3:T+2 = x]
    supported[b]   whether P[X̂_1 = z̃, X̂_3:T+2 = x] > 0
    """

    posterior: Float[Tensor, "batch states"]
    product: Float[Tensor, "batch states"]
    scale: Float[Tensor, " batch"]
    supported: Bool[Tensor, " batch"]


def prompt_and_state(hmm: HMM, prompt: Float[Tensor, " states"]) -> Float[Tensor, " states"]:
    """P[X̂_1 = z̃, H_2]: from u ∘ P[H_1], one step of the chain."""
    return (prompt * (hmm.initial @ hmm.transition)) @ hmm.transition


def disentangled(
    hmm: HMM, prompt: Float[Tensor, " states"], tokens: Int[Tensor, "batch t"]
) -> Disentangled:
    """Lemma B.2 on strings x of positive probability, each piece computed on its own."""
    about = left_out(hmm, prompt, _with_gap(tokens), [2])
    log_mass = about.log_mass[:, 0]
    product = prompt_and_state(hmm, prompt) / hmm.initial * heads.state_before(hmm, tokens)
    supported = ~torch.isneginf(log_mass)
    log_prob = _from_first_state(hmm).with_length(tokens.shape[1]).log_prob(tokens)
    scale = (log_prob - log_mass).exp().masked_fill(~supported, 0.0)
    return Disentangled(about.state[:, 0], product, scale, supported)


# ---------------------------------------------------------------- Theorem 3.6


class PromptWitness(NamedTuple):
    """The prompt and head of the proof.

    prompt      u = 1_B
    head        b = (μ / (D P[z̃, H_2]))_H* (W_:,H*)⁺
    chosen      B
    essential   H*, the states that B reaches in one step
    """

    prompt: Float[Tensor, " states"]
    head: Float[Tensor, " vocab"]
    chosen: Bool[Tensor, " states"]
    essential: Bool[Tensor, " states"]


def conditions(hmm: HMM, task: Float[Tensor, " states"]) -> Conditions:
    """The assumptions of Theorem 3.6 with their margins, for the smallest set B that serves."""
    return _conditions(hmm, essential.smallest_choice(hmm, task))


def witness(hmm: HMM, task: Float[Tensor, " states"]) -> PromptWitness:
    """The prompt and the head of the proof of Theorem 3.6, for the smallest set B that serves.

    Worked value: π = (¼, ½, ¼), A = [[½, ½, 0], [0, 0, 1], [1, 0, 0]], emission rows (1, 0),
    (0, 1), (½, ½), and μ = (1, -1, 0). B = {0} reaches H* = {0, 1}. P[H_1] = (3/8, 1/8, ½), so
    P[z̃, H_2] = (3/16, 3/16, 0); D = (4, 2, 4), so b = (1 / ¾, -1 / (3/8)) = (4/3, -8/3).
    For x = (0): P[H_0 | x] = (1/5, 2/5, 2/5), r_x = (5/8) / (3/16) = 10/3, G_2 = (½, ½), and
    b·G_2 = -2/3 = 10/3 · (1/5 - 2/5).
    """
    chosen = essential.smallest_choice(hmm, task)
    for condition in _conditions(hmm, chosen).conditions:
        if not condition.holds:
            raise ValueError(f"Theorem 3.6 does not apply; {condition}")
    assert chosen is not None  # the first condition
    reached = essential.essential_states(hmm, chosen)
    prompt = chosen.to(hmm.initial.dtype)
    weights = (task * hmm.initial / prompt_and_state(hmm, prompt))[reached]
    head = weights @ heads.left_inverse(hmm.emission[reached].T)
    return PromptWitness(prompt, head, chosen, reached)


def scores(
    hmm: HMM, witness: PromptWitness, tokens: Int[Tensor, "batch t"]
) -> Float[Tensor, " batch"]:
    """b·G_2(u, ∅, x); exactly 0 where the prompt makes x impossible."""
    return masked_second(hmm, witness.prompt, tokens) @ witness.head


# ---------------------------------------------------------------- inside


def _conditions(hmm: HMM, chosen: Bool[Tensor, " states"] | None) -> Conditions:
    sigma = 0.0
    if chosen is not None:
        sigma = essential.margin(hmm, essential.essential_states(hmm, chosen))
    relaxed = Condition(
        "relaxed non-degeneracy (Assumption 3.5)",
        sigma > heads.RANK_TOLERANCE,
        sigma,
        "smallest singular value of the emission columns of H*, 0 if no H* covers the task",
    )
    return Conditions(
        "Theorem 3.6: a prompt and a linear head compute every linear task on P[H_0 | x] "
        "supported on essential states",
        [relaxed, *heads.conditions(hmm).conditions[1:]],
    )


def _left_out_at(
    fake: HMM, strings: Int[Tensor, "batch length"], position: int
) -> tuple[Float[Tensor, " batch"], Float[Tensor, "batch states"], Float[Tensor, "batch symbols"]]:
    """(log P[X̂_-i], P[state of `fake` | X̂_-i], P[X̂_i | X̂_-i]), zeros where impossible."""
    if not 1 <= position <= fake.length:
        raise ValueError(f"position {position} is not among the positions 1 to {fake.length}")
    at, batch, symbols = position - 1, len(strings), fake.vocab_size
    completions = strings.repeat_interleave(symbols, 0)
    completions[:, at] = torch.arange(symbols, device=fake.device).repeat(batch)
    log_mass = fake.log_prob(completions).reshape(batch, symbols).logsumexp(1)
    possible = ~torch.isneginf(log_mass)
    hidden = torch.zeros_like(strings, dtype=torch.bool)
    hidden[:, at] = True
    state, token = log_mass.new_zeros(batch, fake.states), log_mass.new_zeros(batch, symbols)
    if possible.any():  # the oracle refuses to condition on what cannot happen
        shown, gap = strings[possible], hidden[possible]
        state[possible] = fake.log_posterior(shown, gap)[:, at].exp()
        token[possible] = fake.masked_log_probs(shown, gap)[:, at].exp()
    return log_mass, state, token


def _check_prompt(hmm: HMM, prompt: Float[Tensor, " states"]) -> None:
    check_shape("prompt", prompt, (hmm.states,), f"an HMM with {hmm.states} states")
    if not ((prompt >= 0) & (prompt <= 1)).all():
        raise ValueError("a prompt is a vector of probabilities: every entry must be in [0, 1]")


def _from_first_state(hmm: HMM) -> HMM:
    """The chain from H_1 on: what emits the first token."""
    return replace(hmm, initial=hmm.initial @ hmm.transition)


def _with_gap(tokens: Int[Tensor, "batch t"]) -> Int[Tensor, "batch t1"]:
    """(∅, x). Any token may stand for ∅, since what is asked for at H_2 does not read it."""
    return torch.nn.functional.pad(tokens, (1, 0))


def _after_fake_token(
    hmm: HMM, prompt: Float[Tensor, " states"], tokens: Int[Tensor, "batch t"]
) -> tuple[HMM, Int[Tensor, "batch t1"]]:
    """X̂ and the strings (z̃, w)."""
    strings = torch.nn.functional.pad(tokens, (1, 0), value=hmm.vocab_size)
    return fake_token_hmm(hmm, prompt, strings.shape[1]), strings
