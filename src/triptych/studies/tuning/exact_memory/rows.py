"""What a memory HMM says about Theorem 4.3, 4.6 or C.6."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Recovered:
    """Both sides of the statement, on the strings of R, and of the steps of its proof.

    syntax, recoverable   |S| of the model, and how many of them are in S*
    margin                of the recoverable emissions: the assumption fails at 0
    full_memory           every content of the memory is possible
    value_error           value at an attended position against r·μᵀP[M_j* | x], r > 0
    off_support_value     largest score and answer where the prompt is impossible: both are 0
    joint_error           Claims C.3, C.10: the recovered P[M_j*, H_i = (j*, s) | x_-i]
    state_error           the recovered P[H_i | x_-i]
    attention_mismatches  Lemmas C.2, C.9: attended positions that are not those of the proof
    near_ties             positions attended because rounding makes a tie
    """

    seed: int
    cells: int
    values: int
    syntax: int
    recoverable: int
    conditions_hold: bool
    margin: float
    full_memory: bool
    joint_error: float
    state_error: float
    value_error: float
    off_support_value: float
    wrong_labels: int
    too_close_to_call: int
    inputs: int
    in_recoverable: int
    positive: int
    negative: int
    off_support: int
    attention_mismatches: int
    near_ties: int


@dataclass(frozen=True)
class HeadAlone(Recovered):
    """The attention head of Theorem 4.3."""


@dataclass(frozen=True)
class Prompted(Recovered):
    """The prompt and attention head of Theorem 4.6 (one cell) or C.6 (several).

    head_available              the assumption of the head alone holds too
    prompt_attended             inputs on which the head attends to the prompt's own position
    larger_attention            inputs with attended positions that were not certain without it
    published_offset_attended   as `prompt_attended`, for the offset -2 that is printed
    published_offset_wrong      wrong labels with it
    """

    head_available: bool
    prompt_attended: int
    larger_attention: int
    published_offset_attended: int
    published_offset_wrong: int


Row = HeadAlone | Prompted
