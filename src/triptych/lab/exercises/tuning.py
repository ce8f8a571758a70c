"""Exercises on heads and prompts: what a linear head can read off a perfect masked LM."""

from typing import Any

import torch

from triptych.core.table import all_sequences
from triptych.lab.exercises.checking import Exercise, matrix, near, numbers_near
from triptych.structures.hidden_markov.hmm import HMM
from triptych.theory.tuning import essential, heads, prompts

HMM_3 = HMM.random(states=3, vocab_size=4, length=1, seed=0)
TASK_3 = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
LONGEST = 5


def _head(answer: Any) -> str:
    b = matrix(answer, HMM_3.vocab_size)
    x = all_sequences(HMM_3.vocab_size, LONGEST)
    wanted = heads.state_before(HMM_3, x) @ TASK_3 >= 0
    wrong = int(((heads.masked_first(HMM_3, x) @ b >= 0) != wanted).sum())
    return f"This head mistakes {wrong} of {len(x)} inputs." if wrong else ""


def _fewest_tokens(answer: Any) -> str:
    states = 8  # of the question; independent columns need as many rows
    return near(answer, float(torch.eye(states).shape[0]), within=1e-9)


def _no_head(answer: Any) -> str:
    hmm, _ = heads.twin_states(seed=0)
    task = matrix(answer, hmm.states)
    x = all_sequences(hmm.vocab_size, 3)
    x = x[heads.in_support(hmm, x)]
    labels = heads.state_before(hmm, x) @ task >= 0
    if bool(labels.all()) or not bool(labels.any()):
        return "This task gives every input the same label, so a constant computes it."
    if heads.linearly_separable(heads.masked_first(hmm, x), labels, margin=1e-7):
        return "A linear head computes this task on all inputs of 3 tokens."
    return ""


def _state_given_prompt(answer: Any) -> str:
    initial = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    weighed = initial * torch.tensor([1.0, 0.5, 0.0], dtype=torch.float64)
    return numbers_near(answer, weighed / weighed.sum())


def _prompt(answer: Any) -> str:
    hmm = essential.random_with_zeros(8, 4, seed=9, emitted=3)
    task = essential.random_task(hmm, seed=9)
    assert task is not None  # of these seeds
    u = matrix(answer, hmm.states)
    if bool((u < 0).any()) or bool((u > 1).any()):
        return "A soft prompt has entries between 0 and 1."
    x = all_sequences(hmm.vocab_size, LONGEST)
    x = x[heads.in_support(hmm, x)]
    labels = heads.state_before(hmm, x) @ task >= 0
    answers = prompts.masked_second(hmm, u, x)
    possible = answers.sum(-1) > 0  # a head says 0 about an input that the prompt rules out
    if bool(labels[~possible].all()) and heads.linearly_separable(
        answers[possible], labels[possible], margin=1e-7
    ):
        return ""
    return "No linear head computes the task behind this prompt."


EXERCISES = (
    Exercise(
        _head,
        "Up to a positive factor, G_1 = Wᵀ (D P[H_0 | x]), where W is hmm.emission and D has the "
        "entries P[H_1 = h] / P[H_0 = h]. You want b·G_1 to be μ·P[H_0 | x]: a left inverse of Wᵀ.",
    ),
    Exercise(_fewest_tokens, "How many independent columns can a matrix with n rows have?"),
    Exercise(
        _no_head,
        "States 0 and 1 emit the same tokens with the same probabilities. A head that reads the "
        "law of that token cannot tell them apart; which task does?",
    ),
    Exercise(
        _state_given_prompt,
        "By Lemma B.1 the prompt acts as a token that state h emits with probability u(h): Bayes' "
        "rule.",
    ),
    Exercise(
        _prompt,
        "Theorem 3.6: the indicator of a set B whose successors hold the states of the task, and "
        "not more of them than there are tokens. essential.smallest_choice finds such a set.",
    ),
)
