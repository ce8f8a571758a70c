"""Every structure takes what a user may hold: lists, numpy arrays, small integers, numpy numbers.

And refuses the rest in a sentence: one row that is not in a list, sizes that are no sizes.
"""

import math

import numpy as np
import pytest
import torch
from tests.support.grids import pairs
from tests.support.refusals import refused

from triptych.core.randomness import TorchRng
from triptych.core.table import Table
from triptych.core.validation import UserError
from triptych.lab.axioms.discovery import package_examples
from triptych.structures.brackets.dyck import Dyck
from triptych.structures.hidden_markov.hmm import HMM
from triptych.structures.hidden_markov.memory_hmm import MemoryHMM

EXAMPLES = {e.label: e.value for e in package_examples("triptych.structures")}
EXAMPLES["core table"] = Table.random(3, 3, seed=0)
each = pytest.mark.parametrize("label", EXAMPLES)
unchecked = pytest.mark.usefixtures("unchecked_shapes")  # as a user runs it

FORMS = {
    "lists": lambda x: x.tolist(),
    "tuples": lambda x: tuple(map(tuple, x.tolist())),
    "numpy": lambda x: x.numpy(),
    "numpy int16": lambda x: x.numpy().astype(np.int16),
    "int32": lambda x: x.int(),
    "uint8": lambda x: x.byte(),
}
QUESTIONS = ("log_prob", "next_token_log_probs", "masked_log_probs", "log_posterior", "completable")


def asked(structure, form):
    """Every question that the structure answers, put in this form."""
    tokens = structure.sample(3, TorchRng(0))
    hidden = torch.arange(structure.length) % 2 == 0
    hidden = hidden.expand(3, -1)
    given = {
        "log_prob": (form(tokens),),
        "every_next_token_log_probs": (form(tokens),),
        "next_token_log_probs": (form(tokens[:, :-1]),),
        "completable": (form(tokens[:, :-1]),),
        "log_value": (form(tokens[:, :-1]),),
        "masked_log_probs": (form(tokens), hidden.tolist()),
        "log_posterior": (form(tokens), hidden.numpy()),
        "embed": (form(tokens),),
        "text": (form(tokens),),
    }
    return {
        name: getattr(structure, name)(*arguments)
        for name, arguments in given.items()
        if hasattr(structure, name)
    }


@pytest.mark.parametrize(("label", "form"), pairs(EXAMPLES, FORMS))
def test_tokens_in_every_form_have_the_same_answer(label, form):
    structure = EXAMPLES[label]
    wanted = asked(structure, lambda x: x)
    for name, answer in asked(structure, FORMS[form]).items():
        same = torch.equal(answer, wanted[name]) if name != "text" else answer == wanted[name]
        assert same, name


@each
@unchecked
def test_one_row_is_refused_and_the_way_to_pass_it_said(label):
    structure = EXAMPLES[label]
    row = structure.sample(1, TorchRng(0))[0]
    for form in (lambda x: x, lambda x: x.tolist(), lambda x: x.numpy()):
        with pytest.raises(UserError, match=r"pass one row as tokens\[None\] or \[\[0, 1, 1\]\]"):
            structure.log_prob(form(row))
        with pytest.raises(UserError, match=r"pass one row as prefix\[None\]"):
            structure.next_token_log_probs(form(row[:-1]))
        with pytest.raises(UserError, match="it needs 2 dimensions"):
            structure.masked_log_probs(form(row), torch.zeros_like(row, dtype=torch.bool))


@each
@unchecked
def test_the_number_of_samples(label):
    structure = EXAMPLES[label]
    wanted = structure.sample(2, TorchRng(0))
    for two in (np.int64(2), np.uint8(2), torch.tensor(2)):
        assert torch.equal(structure.sample(two, TorchRng(0)), wanted)
    assert structure.sample(0, TorchRng(0)).shape == (0, structure.length)
    for bad, sentence in (
        (-1, "n is -1; it must be at least 0"),
        (2.0, "n is 2.0; it must be a whole number: write 2"),
        (2.5, "n is 2.5; it must be a whole number"),
        (math.nan, "n is nan; it must be a whole number"),
        ("a", "n is 'a'; it must be a whole number"),
        (2**63, "n is 9223372036854775808; it must be at most"),
    ):
        with pytest.raises(UserError) as caught:
            structure.sample(bad, TorchRng(0))
        assert sentence in str(caught.value)
    with refused("rng"):
        structure.sample(1, None)


@each
def test_the_empty_prefix_as_a_list(label):
    structure = EXAMPLES[label]
    wanted = structure.next_token_log_probs(torch.zeros((1, 0), dtype=torch.long))
    assert torch.equal(structure.next_token_log_probs([[]]), wanted)


@each
@unchecked
def test_a_copy_from_lists_is_the_same_structure(label):
    """Fields that are tensors may be given as lists or numpy arrays."""
    structure = EXAMPLES[label]
    tensors = {k: v for k, v in vars(structure).items() if isinstance(v, torch.Tensor)}
    fields = {k: v for k, v in vars(structure).items() if k in structure.__dataclass_fields__}
    for form in (lambda x: x.tolist(), lambda x: x.numpy()):
        copy = type(structure)(**fields | {k: form(tensors[k]) for k in tensors if k in fields})
        tokens = structure.sample(3, TorchRng(0))
        assert torch.equal(copy.log_prob(tokens), structure.log_prob(tokens))
        assert torch.equal(copy.sample(3, TorchRng(0)), tokens)


@each
@unchecked
def test_numpy_sizes_become_plain_ones(label):
    """Whole numbers among the fields, given as numpy integers, are kept as ints."""
    structure = EXAMPLES[label]
    fields = {k: v for k, v in vars(structure).items() if k in structure.__dataclass_fields__}
    sizes = {k: np.int64(v) for k, v in fields.items() if type(v) is int}
    copy = type(structure)(**fields | sizes)
    for name in sizes:
        assert type(getattr(copy, name)) is int
        for bad in (2.0, 2.5, -1, "a", math.nan, True):
            with pytest.raises(UserError, match=f"{name} is"):
                type(structure)(**fields | {name: bad})


@unchecked
def test_random_constructors_refuse_sizes_that_are_none():
    makers = [
        ("states", lambda x: HMM.random(x, 2, 3, seed=0)),
        ("vocab_size", lambda x: HMM.random(2, x, 3, seed=0)),
        ("length", lambda x: HMM.random(2, 2, x, seed=0)),
        ("cells", lambda x: MemoryHMM.random(2, x, 1, 2, 3, seed=0)),
        ("hidden", lambda x: MemoryHMM.random_permutation_mixture(2, x, 2, 3, seed=0)),
        ("max_depth", lambda x: Dyck.prefixes(2, x, 4, q=0.5)),
        ("types", lambda x: Dyck.prefixes(x, 2, 4, q=0.5)),
        ("vocab_size", lambda x: Table.random(x, 2, seed=0)),
    ]
    for name, make in makers:
        make(np.int64(2))
        for bad in (2.5, 2.0, -1, 0, "a", None, math.nan, 2**63):
            with pytest.raises(UserError, match=f"{name} is"):
                make(bad)


@unchecked
def test_lists_for_type_probs():
    wanted = Dyck.fixed_length(4, type_probs=torch.tensor([0.25, 0.75]).double(), q=0.5)
    for given in ([0.25, 0.75], (0.25, 0.75), np.array([0.25, 0.75])):
        dyck = Dyck.fixed_length(np.int64(4), type_probs=given, q=np.float32(0.5))
        assert torch.equal(dyck.type_probs, wanted.type_probs)
        assert torch.equal(dyck.moves, wanted.moves)


# ------------------------------------------------------------------ extremes

TINY = 1e-200


def extreme(label):
    tiny = torch.tensor([1 - TINY, TINY], dtype=torch.float64)
    rows = torch.stack([tiny, tiny.flip(0)])
    one, one_hot = torch.ones(1).double(), torch.tensor([1.0, 0.0]).double()
    return {
        "HMM": lambda: HMM(tiny, rows, rows, length=3),
        "MemoryHMM": lambda: MemoryHMM(
            tiny, one, one[None], torch.stack([one_hot, tiny])[:, None, None], length=3
        ),
        "Dyck": lambda: Dyck.fixed_length(6, type_probs=tiny, q=1e-250),
    }[label]()


@pytest.mark.parametrize("label", ["HMM", "MemoryHMM", "Dyck"])
def test_the_chain_rule_where_products_are_no_floats(label):
    """log p(x) = Σ log p(x_t | x_<t) also where a factor is a product below 1e-308."""
    structure = extreme(label)
    every = Table.of(structure).support
    total = torch.zeros(len(every), dtype=torch.float64)
    for t in range(structure.length):
        law = structure.next_token_log_probs(every[:, :t])
        total += law.gather(1, every[:, t : t + 1])[:, 0]
    log_prob = structure.log_prob(every)
    assert (log_prob < -700).any()
    assert ((log_prob - total).abs() <= 1e-12 * log_prob.abs().clamp(min=1.0)).all()
