"""The entrance: what may be handed over, what comes back, and the sentences of what is refused."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from tests.support import gpus
from tests.support.refusals import refused

from triptych.core.validation import (
    MAX_SIZE,
    ImpossibleEvidence,
    UserError,
    as_bool_mask,
    as_count,
    as_device,
    as_distributions,
    as_end_token,
    as_flag,
    as_floats,
    as_integers,
    as_masked,
    as_number,
    as_positions,
    as_prefix,
    as_probability,
    as_seed,
    as_size,
    as_text,
    as_tokens,
    check_callable,
    check_can,
    check_room,
)

pytestmark = pytest.mark.usefixtures("unchecked_shapes")  # as a user runs it

ROWS = [[0, 1, 2], [2, 1, 0]]
NAN, INF = math.nan, math.inf


def refuses(sentence, function, *arguments, **options):
    with pytest.raises(UserError) as caught:
        function(*arguments, **options)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_a_user_error_is_a_value_error():
    assert issubclass(UserError, ValueError)
    assert issubclass(ImpossibleEvidence, UserError)


@pytest.mark.parametrize(
    "three", [3, np.int64(3), np.uint8(3), np.array(3), torch.tensor(3), torch.tensor(3).byte()]
)
def test_counts(three):
    count = as_count("n", three, at_least=3, at_most=3)
    assert count == 3
    assert type(count) is int


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (2.0, "n is 2.0; it must be a whole number: write 2"),
        (np.float32(2), "n is np.float32(2.0); it must be a whole number: write 2"),
        (2.5, "n is 2.5; it must be a whole number"),
        (NAN, "n is nan; it must be a whole number"),
        (INF, "n is inf; it must be a whole number"),
        ("2", "n is '2'; it must be a whole number"),
        (None, "n is None; it must be a whole number"),
        (True, "n is True; it must be a whole number"),
        (np.bool_(True), "it must be a whole number"),
        (torch.tensor(True), "it must be a whole number"),
        (torch.tensor(2.0), "it must be a whole number"),
        (torch.tensor([2]), "n is a tensor of shape (1,) and dtype torch.int64; it must be"),
        (np.array([2]), "n is an array of shape (1,) and dtype int64; it must be"),
        ([2], "n is [2]; it must be a whole number"),
        (-1, "n is -1; it must be at least 0"),
        (8, "n is 8; it must be at most 7"),
        (2**70, f"n is {2**70}; it must be at most 7"),
    ],
)
def test_what_is_no_count(value, sentence):
    refuses(sentence, as_count, "n", value, at_least=0, at_most=7)


def test_sizes_and_seeds():
    assert as_size("states", np.int32(4)) == 4
    refuses("states is 0; it must be at least 1", as_size, "states", 0)
    refuses(f"it must be at most {MAX_SIZE}", as_size, "states", 2**63)
    assert as_seed(2**63 - 1) == 2**63 - 1
    refuses("seed is -1; it must be at least 0", as_seed, -1)
    refuses("seed is 4294967296; it must be at most", as_seed, 2**32, at_most=2**32 - 1)


@pytest.mark.parametrize(
    "half",
    [0.5, np.float32(0.5), np.float64(0.5), np.array(0.5), torch.tensor(0.5), Fraction(1, 2)],
)
def test_numbers(half):
    number = as_number("q", half, above=0, below=1)
    assert number == 0.5
    assert type(number) is float
    assert as_probability("q", half, strictly=True) == 0.5


def test_what_is_no_number():
    refuses("q is 'a'; it must be a number", as_number, "q", "a")
    refuses("q is None; it must be a number", as_number, "q", None)
    refuses("q is True; it must be a number", as_number, "q", True)
    refuses("q is [0.5]; it must be a number", as_number, "q", [0.5])
    refuses("q is 1j; it must be a number", as_number, "q", 1j)
    refuses("q is a tensor of shape (1,)", as_number, "q", torch.ones(1))
    refuses("q is beyond the range of floats", as_number, "q", 10**400)
    refuses("q is nan; it must be a finite number", as_number, "q", NAN)
    refuses("q is nan; it must be a finite number", as_number, "q", NAN, finite=False)
    refuses("q is inf; it must be a finite number", as_number, "q", INF)
    assert as_number("q", -INF, finite=False) == -INF
    assert as_number("q", INF, above=0, finite=False) == INF
    refuses("q is 0.0; it must be above 0", as_number, "q", 0, above=0)
    refuses("q is 1.0; it must be below 1", as_number, "q", 1, below=1)
    refuses("q is 0.5; it must be at least 1", as_number, "q", 0.5, at_least=1)
    refuses("q is 2.5; it must be at most 2", as_number, "q", 2.5, at_most=2)
    assert as_number("q", 1, at_least=1, at_most=1) == 1.0


def test_probabilities():
    assert [as_probability("p", p) for p in (0, 1, np.float64(0.25))] == [0.0, 1.0, 0.25]
    for bad in (NAN, INF, -0.1, 1.1):
        refuses(f"p is {bad}; it must be a probability, between 0 and 1", as_probability, "p", bad)
    for bad in (0.0, 1.0, NAN):
        refuses("it must lie strictly between 0 and 1", as_probability, "p", bad, strictly=True)


def test_end_tokens():
    assert as_end_token(None, 3) is None
    assert as_end_token(np.int64(2), 3) == 2
    assert as_end_token(7) == 7
    for several in ([2, 0, 2], (0, 2), {0, 2}, range(0, 3, 2), np.array([2, 0])):
        assert as_end_token(several, 3) == (0, 2)
    assert as_end_token([1], 3) == (1,)
    assert as_end_token([], 3) is None
    for bad in (3, -1, 0.5, NAN, "a", True, [3], [0, -1], [0.5], [[1]], {1: 2}, "12"):
        refuses("it must be a token, 0..2, or None", as_end_token, bad, 3)
    refuses("end_token is -1; it must be a token, or None", as_end_token, -1)


def test_flags_texts_and_devices():
    assert as_flag("end", np.bool_(True)) is True
    refuses("end is 1; it must be True or False", as_flag, "end", 1)
    assert as_text("name", "a") == "a"
    refuses("name is 3; it must be a string", as_text, "name", 3)
    assert as_device("cpu") == as_device(torch.device("cpu")) == torch.device("cpu")
    refuses("device is 1; it must be a device", as_device, 1)


ODD_DEVICES = ["a", "", "CPU", " cpu", "cpu\n", "cpu:0", "cpu:3", "mps", "xpu", "vulkan", "meta"]
ODD_DEVICES += ["tpu9", "cuda:", "cuda:-1", "cuda:01"]
ODD_DEVICES += ["cuda: 1", "cuda:+1", "cuda:1.0", "cuda:\u0661", "cuda:0:0", "cuda:99999999999"]
ODD_DEVICES += ["cuda:128", "cuda:255", "cuda:256"]  # torch reads 256 as 0


@pytest.mark.parametrize("odd", [*ODD_DEVICES, 1, torch.device("meta"), torch.device("cpu", 1)])
@pytest.mark.parametrize("here", [True, False])
def test_odd_devices(two_gpus, odd, here):
    with refused("device"):
        as_device(odd, here=here)


@pytest.fixture
def two_gpus(monkeypatch):
    gpus.pretend(monkeypatch, 2)


def test_devices_of_a_machine_with_gpus(two_gpus):
    for device in ("cpu", "cuda", "cuda:0", "cuda:1", torch.device("cuda", 1)):
        assert as_device(device) == torch.device(device)
    for device in ("cuda:2", "cuda:9", torch.device("cuda", 2)):
        refuses("this machine has 2 GPUs: the last one is 'cuda:1'", as_device, device)


def test_devices_of_a_machine_without_gpus(monkeypatch):
    gpus.pretend(monkeypatch, 0)
    for device in ("cuda", "cuda:0", "cuda:9"):
        refuses("and this machine has no GPU", as_device, device)
        assert as_device(device, here=False) == torch.device(device)


def test_what_an_object_must_have():
    check_can("rng", torch, "rand")
    refuses("rng is None; it needs categorical", check_can, "rng", None, "categorical")
    refuses(
        "density is 3; it needs log_prob and length", check_can, "density", 3, "log_prob", "length"
    )
    check_callable("step", len, "step(state, rng)")
    refuses(
        "step is 3; it must be a function, step(state)", check_callable, "step", 3, "step(state)"
    )


# ------------------------------------------------------------------ tokens


@pytest.mark.parametrize(
    "given",
    [
        ROWS,
        tuple(map(tuple, ROWS)),
        [np.array(row) for row in ROWS],
        [torch.tensor(row) for row in ROWS],
        np.array(ROWS),
        np.array(ROWS, dtype=np.uint8),
        np.array(ROWS, dtype=">i4"),
        np.array(ROWS)[:, ::-1][:, ::-1],
        torch.tensor(ROWS),
        torch.tensor(ROWS, dtype=torch.int32),
        torch.tensor(ROWS, dtype=torch.int16),
        torch.tensor(ROWS, dtype=torch.uint8),
    ],
)
def test_tokens_in_many_forms(given):
    for tokens in (
        as_tokens(given, 3, length=3, device="cpu"),
        as_prefix(given, 3, 4),
        as_masked(given, np.zeros((2, 3), dtype=bool), 3)[0],
    ):
        assert tokens.dtype == torch.int64
        assert tokens.tolist() == ROWS


def test_a_clean_tensor_is_not_copied():
    tokens, hidden = torch.tensor(ROWS), torch.zeros((2, 3), dtype=torch.bool)
    assert as_tokens(tokens, 3) is tokens
    clean, mask = as_masked(tokens, hidden, 3, length=3, device=torch.device("cpu"))
    assert clean is tokens
    assert mask is hidden
    probs = torch.tensor([0.5, 0.5], dtype=torch.float64)
    assert as_distributions("p", probs) is probs


def test_an_array_is_copied():
    array = np.array(ROWS)
    tokens = as_tokens(array, 3)
    array[0, 0] = 2
    assert tokens[0, 0] == 0


@pytest.mark.parametrize("empty", [[[]], np.zeros((1, 0), dtype=int), torch.zeros((1, 0)).long()])
def test_the_empty_prefix(empty):
    assert as_prefix(empty, 3, 1).shape == (1, 0)
    assert as_prefix(empty, 3, 1).dtype == torch.int64


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ([0, 1], "tokens has shape (2,); it needs 2 dimensions (batch, length): pass one row as"),
        (torch.tensor([0, 1]), "tokens has shape (2,); it needs 2 dimensions"),
        (np.array(1), "tokens has shape (); it needs 2 dimensions"),
        ([], "tokens has shape (0,); it needs 2 dimensions"),
        ([[0, 1], [0]], "whose rows differ in length"),
        ([[0.0, 1.0]], "tokens holds np.float64(0.0) (float64); it must hold whole numbers"),
        ([["a"]], "tokens holds np.str_('a')"),
        ([[None]], "tokens holds None (object); it must hold whole numbers"),
        ([[True]], "(bool); it must hold whole numbers"),
        ([[2**63]], "tokens holds 9223372036854775808, which is beyond 64-bit integers"),
        ([[2**70]], "(object); it must hold whole numbers"),
        ("a", "tokens is 'a'; it must be a tensor or lists of whole numbers"),
        (None, "tokens is None; it must be a tensor or lists of whole numbers"),
        (3, "tokens is 3; it must be a tensor or lists of whole numbers"),
        ({0: 1}, "tokens is a dict; it must be a tensor or lists of whole numbers"),
        (torch.zeros((1, 2)), "tokens has dtype torch.float32; pass tokens.long()"),
        (torch.zeros((1, 2)).bool(), "tokens has dtype torch.bool; pass tokens.long()"),
        (torch.zeros((1, 2)).long().to_sparse(), "tokens is sparse"),
        ([[0, 3]], "token 3 at row 0, position 1 is outside 0..2"),
        ([[0, 0], [-1, 0]], "token -1 at row 1, position 0 is outside 0..2"),
        ([[0]], "tokens have length 1; this structure has length 2"),
    ],
)
def test_what_are_no_tokens(given, sentence):
    refuses(sentence, as_tokens, given, 3, length=2)


def test_tokens_elsewhere_are_refused():
    elsewhere = torch.zeros((1, 2), dtype=torch.long, device="meta")
    refuses(
        "tokens is on meta and must be on cpu: pass tokens.to('cpu')",
        as_tokens,
        elsewhere,
        3,
        device="cpu",
    )


def test_prefixes_leave_room():
    refuses("the prefix has 2 tokens; this structure has length 2", as_prefix, [[0, 1]], 3, 2)
    assert as_prefix([[0, 1]], 3).tolist() == [[0, 1]]
    refuses("prefix has shape (2,)", as_prefix, [0, 1], 3)


def test_masks():
    for given in ([[True, False]], np.array([[True, False]]), torch.tensor([[True, False]])):
        assert as_bool_mask("hidden", given, shape=(1, 2)).tolist() == [[True, False]]
    assert as_bool_mask("hidden", [[]]).shape == (1, 0)
    for given in ([[1, 0]], np.array([[1, 0]], np.uint64), torch.tensor([[1, 0]])):
        assert as_bool_mask("hidden", given).tolist() == [[True, False]]
    for given in ([[1, 2]], [[-1]], np.array([[2**63]], np.uint64), torch.tensor([[256]])):
        refuses("it must be a bool tensor, or hold 0 and 1, True where", as_bool_mask, "h", given)
    refuses("hidden is torch.float32; it must be", as_bool_mask, "hidden", torch.ones(1, 1))
    refuses("hidden is None; it must be a tensor or lists", as_bool_mask, "hidden", None)
    refuses(
        "hidden has shape (1, 1); it needs (1, 2)", as_bool_mask, "hidden", [[True]], shape=(1, 2)
    )
    tokens, hidden = as_masked([[9, 1]], [[True, False]], 2, length=2)
    assert tokens.tolist() == [[9, 1]]
    assert hidden.tolist() == [[True, False]]
    tokens, hidden = as_masked([[0, 1]], None, 2)
    assert hidden.tolist() == [[False, False]]
    refuses("token 9 at row 0", as_masked, [[9, 1]], None, 2)
    refuses("token 9 at row 0", as_masked, [[9, 1]], [[False, False]], 2)
    refuses(
        "hidden has shape (1, 1) and tokens (1, 2); they must be equal",
        as_masked,
        [[0, 1]],
        [[True]],
        2,
    )


def test_positions():
    for given in ([2, 0], (2, 0), np.array([2, 0]), torch.tensor([2, 0])):
        assert as_positions("block", given, 3) == [2, 0]
    refuses("block [0, 0] must hold distinct positions in 0..2", as_positions, "block", [0, 0], 3)
    refuses("block [3] must hold distinct positions", as_positions, "block", [3], 3)
    refuses("block[0] is -1; it must be at least 0", as_positions, "block", [-1], 3)
    refuses("block[0] is 0.5; it must be a whole number", as_positions, "block", [0.5], 3)
    refuses("block is 1; it must be a list of positions", as_positions, "block", 1, 3)
    refuses("block has shape (1, 1); it must be", as_positions, "block", np.array([[1]]), 3)


# ------------------------------------------------------------------ numbers in tensors


@pytest.mark.parametrize(
    "given",
    [
        [[1, 0], [0.25, 0.75]],
        ((1.0, 0.0), (0.25, 0.75)),
        np.array([[1, 0], [0.25, 0.75]]),
        torch.tensor([[1, 0], [0.25, 0.75]], dtype=torch.float64),
    ],
)
def test_floats_in_many_forms(given):
    values = as_distributions("emission", given, shape=(2, None), meaning="[states, vocab]")
    assert values.dtype == torch.float64
    assert values.tolist() == [[1.0, 0.0], [0.25, 0.75]]


def test_whole_numbers_become_floats():
    for given in ([1, 0], np.array([1, 0]), torch.tensor([1, 0])):
        assert as_floats("initial", given).tolist() == [1.0, 0.0]
        assert as_floats("initial", given).dtype == torch.float64


def test_gradients_pass_the_entrance():
    values = torch.tensor([0.5, 0.5], dtype=torch.float64, requires_grad=True)
    assert as_floats("p", values).requires_grad


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ([1.0, NAN], "p[1] is nan; it must be finite"),
        ([1.0, INF], "p[1] is inf; it must be finite"),
        (["a", "b"], "p holds np.str_('a'); it must hold numbers"),
        ([None], "p holds None; it must hold numbers"),
        ([True], "it must hold numbers"),
        ([[1.0], [0.5, 0.5]], "whose rows differ in length"),
        ("ab", "p is 'ab'; it must be a tensor or lists of numbers"),
        (None, "p is None; it must be a tensor or lists of numbers"),
        (1.0, "p is 1.0; it must be a tensor or lists of numbers"),
        (torch.tensor([1.0, 0.0]), "p has dtype torch.float32; exact inference needs float64"),
        (np.ones(2, dtype=np.float32), "p has dtype float32; exact inference needs float64"),
        (torch.tensor([True, False]), "p has dtype torch.bool"),
        (torch.tensor([1j, 0]), "p has dtype torch.complex64"),
        ([[1.0, 0.0]], "p has shape (1, 2); it must be of shape [states]"),
        ([], "p has no outcomes: its last dimension is empty"),
        ([1.5, -0.5], "p[1] is -0.5; it must not be negative"),
        ([0.5, 0.6], "p sums to 1.1; each row must sum to 1"),
    ],
)
def test_what_are_no_probabilities(given, sentence):
    refuses(sentence, as_distributions, "p", given, shape=(None,), meaning="[states]")


def test_infinities_where_they_are_allowed():
    assert as_floats("log_p", [0.0, -INF], finite=False).tolist() == [0.0, -INF]
    refuses("log_p[0] is nan; it must be a number", as_floats, "log_p", [NAN], finite=False)


def test_integers():
    assert as_integers("secret", [1, 0], dimensions=1).tolist() == [1, 0]
    refuses(
        "secret has shape (1, 1); it needs 1 dimension", as_integers, "secret", [[1]], dimensions=1
    )


def test_room():
    check_room("a table", 2, 3)
    refuses("a table would have 1000000 x 1000000 entries", check_room, "a table", 10**6, 10**6)
