import itertools
import math

import pytest
import torch
from tests.support.refusals import refused

from triptych.core.randomness import TorchRng
from triptych.core.table import Table, all_sequences
from triptych.core.validation import ImpossibleEvidence
from triptych.structures.brackets.dyck import Dyck, DyckError, examples
from triptych.structures.brackets.parse import minimal_first_layer, type_and_depth

pytestmark = pytest.mark.numerical


def f64(values):
    return torch.tensor(values, dtype=torch.float64)


def brackets(k, depth, n):
    """Every prefix of length n of balanced strings, with its depths, by a plain stack."""
    found = []
    for tokens in itertools.product(range(2 * k), repeat=n):
        stack, depths = [], []
        for token in tokens:
            if token % 2 == 0:
                stack.append(token // 2)
            elif not stack or stack.pop() != token // 2:
                break
            depths.append(len(stack))
        if len(depths) == n and max(depths) <= depth:
            found.append((tokens, depths))
    return found


def test_worked_value():
    """k = 2, D = 2, q = ¼: p("[(") = ½ · ¼·½ = 1/16; then ")" is forced and "]" has 1 - q."""
    dyck = Dyck.prefixes(types=2, max_depth=2, length=4, q=0.25)
    table = Table.of(dyck)
    assert table.log_prob(dyck.tokens("[()]")).exp().item() == pytest.approx(3 / 64)
    assert dyck.parse(dyck.tokens("[(")).log_prob.exp().item() == pytest.approx(1 / 16)


@pytest.mark.parametrize(("k", "depth", "n", "q"), [(2, 2, 5, 0.3), (1, 3, 6, 0.7), (2, 3, 4, 0.5)])
def test_prefix_law_is_equation_2_39(k, depth, n, q):
    """(1/k)^{opened to depth 1} (q/k)^{opened deeper} (1-q)^{closed from below depth D}."""
    dyck = Dyck.prefixes(types=k, max_depth=depth, length=n, q=q)
    weights = {}
    for tokens, depths in brackets(k, depth, n):
        weight = 1.0
        for token, d in zip(tokens, depths, strict=True):
            if token % 2 == 0:
                weight *= (1 / k) if d == 1 else q / k
            elif d < depth - 1:
                weight *= 1 - q
        weights[tokens] = weight
    assert sum(weights.values()) == pytest.approx(1)  # the printed ∝ is an equality
    got = {x: p for x, p in Table.of(dyck).as_dict().items() if p > 0}
    assert got == pytest.approx(weights)


def fixed_length_weights(n, p, q, *, printed):
    """Equations (3.3)-(3.4) with D = n; forced closings count a factor 1 - q only if printed."""
    weights = {}
    for tokens, depths in brackets(2, n, n):
        if depths[-1] != 0:
            continue
        weight = 1.0
        for i, (token, d) in enumerate(zip(tokens, depths, strict=True), 1):
            if token % 2 == 0:
                weight *= (p if token == 0 else 1 - p) * (1 if d == 1 else q)
            elif printed or d < n - i:
                weight *= 1 - q
        weights[tokens] = weight
    total = sum(weights.values())
    return {x: w / total for x, w in weights.items()}, total


@pytest.mark.parametrize(("p", "q"), [(0.2, 0.5), (0.8, 0.3)])
def test_fixed_length_law_is_the_process_of_remark_3_2_1(p, q):
    wanted, total = fixed_length_weights(6, p, q, printed=False)
    assert total == pytest.approx(1)  # with forced closings free, (3.3)-(3.4) is normalised
    dyck = Dyck.fixed_length(6, type_probs=f64([p, 1 - p]), q=q)
    got = {x: w for x, w in Table.of(dyck).as_dict().items() if w > 0}
    assert got == pytest.approx(wanted)


def test_fixed_length_law_as_printed_is_another_one():
    """N = 4, one type: the process opens a second bracket with q; as printed, q / (1 + q)."""
    q, one = 0.25, f64([1.0])
    process = Dyck.fixed_length(4, type_probs=one, q=q)
    printed = Dyck.fixed_length_printed(4, type_probs=one, q=q)
    nested = process.tokens("[[]]")
    assert process.log_prob(nested).exp().item() == pytest.approx(q)
    assert printed.log_prob(nested).exp().item() == pytest.approx(q / (1 + q))
    wanted, _ = fixed_length_weights(6, 0.2, 0.5, printed=True)
    both = Dyck.fixed_length_printed(6, type_probs=f64([0.2, 0.8]), q=0.5)
    got = {x: w for x, w in Table.of(both).as_dict().items() if w > 0}
    assert got == pytest.approx(wanted)


def test_complete_law_is_the_conditioned_process():
    """Strings of 2..6 tokens of the endless process: weights by the definition, then normalised."""
    q, stop = 0.4, 0.3
    dyck = Dyck.complete(types=2, max_depth=2, length=6, q=q, stop=stop)
    weights = {}
    for n in (2, 4, 6):
        for tokens, depths in brackets(2, 2, n):
            if depths[-1] != 0:
                continue
            weight, depth = stop, 0
            for token, d in zip(tokens, depths, strict=True):
                if token % 2 == 0:
                    weight *= ((1 - stop) if depth == 0 else q) / 2
                elif depth < 2:
                    weight *= 1 - q
                depth = d
            weights[tokens + (4,) * (6 - n)] = weight
    total = sum(weights.values())
    got = {x: p for x, p in Table.of(dyck).as_dict().items() if p > 0}
    assert got == pytest.approx({x: w / total for x, w in weights.items()})


def test_lengths_far_beyond_training():
    dyck = Dyck.complete(types=2, max_depth=4, length=500, q=0.5, min_length=400)
    tokens = dyck.sample(20, TorchRng(0))
    lengths = (tokens != dyck.end_token).sum(1)
    assert (lengths >= 400).all()
    assert torch.isfinite(dyck.log_prob(tokens)).all()
    hidden = torch.zeros_like(tokens, dtype=torch.bool)
    hidden[:, 100:110] = True
    total = dyck.masked_log_probs(tokens, hidden).logsumexp(-1)
    torch.testing.assert_close(total, torch.zeros_like(total), atol=1e-9, rtol=0)


def test_unlikely_brackets_are_not_impossible():
    """Two hundred pairs that open with q = 0.01: hidden brackets before them still have a law."""
    dyck = Dyck.prefixes(types=1, max_depth=3, length=401, q=0.01)
    tokens = dyck.tokens("[" + "[]" * 200)
    hidden = torch.zeros_like(tokens, dtype=torch.bool)
    hidden[:, 1] = True
    total = dyck.masked_log_probs(tokens, hidden).logsumexp(-1)
    torch.testing.assert_close(total, torch.zeros_like(total), atol=1e-9, rtol=0)
    deep = Dyck.prefixes(types=1, max_depth=4, length=404, q=0.01)
    tokens = deep.tokens("[[" + "[]" * 200 + "]]")
    hidden = torch.zeros_like(tokens, dtype=torch.bool)
    hidden[:, :2] = True
    assert deep.masked_log_probs(tokens, hidden)[0, :2, 0].exp().tolist() == pytest.approx([1, 1])


@pytest.mark.parametrize("name", ["prefixes", "complete", "fixed length"])
def test_the_posterior_of_the_stack_by_enumeration(name):
    """Every string of the support, weighed by its probability, votes for its stack at t."""
    dyck = examples()[name]
    table = Table.of(dyck)
    support, weight = table.support, table.log_probs[~torch.isneginf(table.log_probs)].exp()
    nodes = sum(dyck.types**d for d in range(dyck.max_depth + 1))
    for row in range(0, len(support), 7):
        hidden = torch.arange(dyck.length) % 3 != 1
        fits = ((support == support[row]) | hidden).all(1)
        got = dyck.log_posterior(support[row][None], hidden[None]).exp()[0]
        for t in range(dyck.length):
            votes = torch.zeros(nodes + 1, dtype=torch.float64)
            parse = dyck.parse(support[fits][:, : t + 1])
            for depth, stack, ended, w in zip(
                parse.depth.tolist(),
                parse.stack.tolist(),
                parse.ended.tolist(),
                weight[fits],
                strict=True,
            ):
                node = 0
                for kind in stack[:depth]:
                    node = node * dyck.types + 1 + kind
                votes[nodes if ended else node] += w
            torch.testing.assert_close(got[t], votes / votes.sum(), atol=1e-12, rtol=0)


def test_the_published_setting():
    """D = 32, p = 0.2, q = 0.5: all samples balanced, p of the brackets square."""
    dyck = Dyck.fixed_length(32, type_probs=f64([0.2, 0.8]), q=0.5)
    tokens = dyck.sample(500, TorchRng(0))
    assert (dyck.parse(tokens).depth == 0).all()
    assert (dyck.parse(tokens).error == DyckError.NONE).all()
    opened = tokens[tokens % 2 == 0]
    share = (opened == 0).double().mean()
    assert abs(share - 0.2) < 6 * math.sqrt(0.2 * 0.8 / len(opened))
    with refused("types"):
        Dyck.fixed_length(64, type_probs=f64([0.2, 0.8]), q=0.5).masked_log_probs(
            torch.zeros((1, 64), dtype=torch.long), torch.ones((1, 64), dtype=torch.bool)
        )


@pytest.mark.parametrize(
    ("text", "kind", "position"),
    [
        ("[]()[]", DyckError.NONE, 6),
        ("[]]", DyckError.UNMATCHED_CLOSE, 2),
        ("[(])", DyckError.WRONG_CLOSE, 2),
        ("[([", DyckError.TOO_DEEP, 2),
        ("[]()(", DyckError.NONE, 5),
        ("[]([]", DyckError.NONE, 5),
        ("[]()[[", DyckError.TOO_LATE, 5),
        ("[(]][)", DyckError.WRONG_CLOSE, 2),  # only the first error counts
    ],
)
def test_the_parser_finds_the_first_error(text, kind, position):
    dyck = Dyck.fixed_length(6, type_probs=f64([0.5, 0.5]), q=0.5, max_depth=2)
    parse = dyck.parse(dyck.tokens(text))
    assert (DyckError(parse.error.item()), parse.position.item()) == (kind, position)
    assert torch.isneginf(parse.log_prob).item() == (kind != DyckError.NONE)


@pytest.mark.parametrize(
    ("text", "kind", "position"),
    [
        ("[]..", DyckError.NONE, 4),
        ("[.", DyckError.PREMATURE_END, 1),
        (".", DyckError.PREMATURE_END, 0),  # shorter than min_length
        ("[].[", DyckError.AFTER_END, 3),
        ("[][][]", DyckError.NONE, 6),
        ("[][][", DyckError.NONE, 5),
        ("[][[][", DyckError.TOO_LATE, 5),
    ],
)
def test_the_parser_knows_the_end(text, kind, position):
    dyck = Dyck.complete(types=2, max_depth=3, length=6, q=0.5)
    parse = dyck.parse(dyck.tokens(text))
    assert (DyckError(parse.error.item()), parse.position.item()) == (kind, position)


@pytest.mark.parametrize("name", list(examples()))
def test_the_process_verifier_is_the_support(name):
    """A prefix is completable exactly if some string of the support continues it."""
    dyck = examples()[name]
    support = {tuple(x) for x in Table.of(dyck).support.tolist()}
    for t in range(dyck.length + 1):
        prefixes = all_sequences(dyck.vocab_size, t)
        live = {x[:t] for x in support}
        wanted = torch.tensor([tuple(x) in live for x in prefixes.tolist()])
        assert torch.equal(dyck.completable(prefixes), wanted)
        assert torch.equal(dyck.log_value(prefixes) == 0, wanted)


def test_the_stack_is_kept():
    dyck = Dyck.prefixes(types=2, max_depth=3, length=5, q=0.5)
    parse = dyck.parse(dyck.tokens("[(])("[:2], "[]", "(("))
    assert parse.depth.tolist() == [2, 0, 2]
    assert parse.stack[0, :2].tolist() == [0, 1]
    assert parse.stack[2, :2].tolist() == [1, 1]


def test_the_posterior_of_the_stack():
    """q = ½, D = 2, one type: after a hidden first token the stack is "[" for sure; after two
    hidden tokens it is empty or "[[" with ½ each."""
    dyck = Dyck.prefixes(types=1, max_depth=2, length=2, q=0.5)
    tokens = torch.zeros((1, 2), dtype=torch.long)
    state = dyck.log_posterior(tokens, torch.ones_like(tokens).bool()).exp()
    torch.testing.assert_close(state[0, 0], f64([0.0, 1.0, 0.0, 0.0]))
    torch.testing.assert_close(state[0, 1], f64([0.5, 0.0, 0.5, 0.0]))


def test_type_and_depth_by_hand():
    """ "[()]" has depths 1, 2, 2, 1; a start token (id 4) before it has depth 0."""
    dyck = Dyck.prefixes(types=2, max_depth=2, length=4, q=0.5)
    tokens = torch.cat([torch.tensor([[4]]), dyck.tokens("[()]")], dim=1)
    kind, depth = type_and_depth(tokens, 2)
    assert depth.tolist() == [[0, 1, 2, 2, 1]]
    assert kind.tolist() == tokens.tolist()
    joint = minimal_first_layer(tokens, 2, 2)
    assert joint.shape == (1, 5, 18)
    assert joint[0].argmax(-1).tolist() == [4 * 3, 0 * 3 + 1, 2 * 3 + 2, 3 * 3 + 2, 1 * 3 + 1]
    apart = minimal_first_layer(tokens, 2, 2, joint=False)
    assert apart.shape == (1, 5, 9)
    assert apart[0, 2].nonzero()[:, 0].tolist() == [2, 6 + 2]


def test_text_goes_both_ways():
    dyck = Dyck.complete(types=2, max_depth=3, length=6, q=0.5)
    assert dyck.text(dyck.tokens("[()]..")) == ["[()].."]
    with pytest.raises(ValueError, match=r"'\{' is none of"):
        dyck.tokens("{}")


def test_bad_input_is_explained():
    half = f64([0.5, 0.5])
    with refused("length"):
        Dyck.fixed_length(5, type_probs=half, q=0.5)
    with refused("q"):
        Dyck.prefixes(types=2, max_depth=2, length=3, q=1.0)
    with refused("final"):
        Dyck.complete(types=2, max_depth=2, length=3, q=0.5, min_length=3)
    with refused("type_probs"):
        Dyck.fixed_length(4, type_probs=f64([1.0, 0.0]), q=0.5)
    moves = f64([[[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]]])
    with refused("moves"):
        Dyck(half, moves)
    dyck = Dyck.prefixes(types=2, max_depth=2, length=3, q=0.5)
    with refused("log_evidence", ImpossibleEvidence):
        dyck.next_token_log_probs(dyck.tokens("[)"))
    with refused("hidden"):
        dyck.parse(torch.tensor([[4]]))
