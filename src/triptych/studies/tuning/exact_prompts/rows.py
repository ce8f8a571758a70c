"""What a model says about Lemma B.1, Lemma B.2 or Theorem 3.6."""

from dataclasses import dataclass
from typing import Literal

Family = Literal["dense", "sparse", "zeros"]
PromptKind = Literal["inside", "corner", "zero"]


@dataclass(frozen=True)
class FakeToken:
    """τ and G of the embedding model against the HMM with one more token, X̂ = (z̃, x).

    state_error, output_error, token_error, log_mass_error
        Largest difference on the support, of P[H_i | X̂_-i], of W times it, of the tokens beyond
        the first, of log P[X̂_-i].
    value_off_support    largest entry of G where X̂_-i is impossible
    support_mismatches   positions that are possible for one of the two alone
    """

    seed: int
    family: Family
    states: int
    prompt: PromptKind
    state_error: float
    output_error: float
    token_error: float
    log_mass_error: float
    value_off_support: float
    support_mismatches: int
    supported: int
    off_support: int


@dataclass(frozen=True)
class Disentangled:
    """Both sides of Lemma B.2.

    smallest_scale    least r_x on the support; None without a string there
    """

    seed: int
    family: Family
    states: int
    vocab: int
    prompt: PromptKind
    equation_error: float
    smallest_scale: float | None
    value_off_support: float
    supported: int
    off_support: int


@dataclass(frozen=True)
class Prompted:
    """The prompt and head of Theorem 3.6, and what a head alone does on the short strings.

    margin, chosen, essential
        Smallest singular value of the essential emission columns; states in B; essential states.
    identity_error            relative to the head's largest weight
    head_alone_works          some linear head without a prompt gets all labels right
    head_alone_wrong_share    wrong labels of the one with the least hinge loss
    """

    seed: int
    family: Family
    states: int
    vocab: int
    conditions_hold: bool
    margin: float
    chosen: int
    essential: int
    identity_error: float
    wrong_labels: int
    too_close_to_call: int
    off_support: int
    off_support_wrong: int
    inputs: int
    head_alone_works: bool
    head_alone_wrong_share: float
    positive_share: float


Row = FakeToken | Disentangled | Prompted
