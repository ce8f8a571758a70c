import itertools
import math
from fractions import Fraction

import pytest
import torch
from tests.support.refusals import refused

from triptych.core.randomness import TorchRng
from triptych.core.table import Table
from triptych.core.validation import UserError
from triptych.structures.brackets.dyck import Dyck
from triptych.structures.cfg import CFG, examples

pytestmark = pytest.mark.numerical

CATALAN = {"S": {("S", "S"): 0.25, "a": 0.75}}


def test_worked_value():
    """p("a") ∝ ¾ and p("aa") ∝ ¼·(¾)²; at most two words: ¾ / (¾ + 9/64) = 16/19."""
    cfg = CFG.from_rules(CATALAN, length=2)
    assert cfg.log_prob(torch.tensor([[0, 1]])).exp().item() == pytest.approx(16 / 19)


@pytest.mark.parametrize(
    "rules",
    [
        {"S": {"A": 1.0}, "A": {"a": 1.0}},
        {"S": {"a": 0.5, "S": 0.5}},
        {"S": {"A B": 1.0}, "A": {"a": 1.0}, "B": {"b": 1.0}},  # a pair that is no tuple
        {"": {"": 1.0}},
        {"A B": {"A B": 1.0}},
    ],
)
def test_a_word_is_no_symbol(rules):
    with pytest.raises(UserError, match=r"a string is a word.* as a tuple, such as \('"):
        CFG.from_rules(rules, 2)
    assert CFG.from_rules({"S": {"A b": 0.5, " ": 0.25, "": 0.25}, "A": {"a": 1.0}}, 1).words == 4


def test_trees_are_counted():
    """aaa has two trees, aaaa five: inside(aⁿ) = Catalan(n-1) (¼)^(n-1) (¾)ⁿ."""
    inside = CFG.from_rules(CATALAN, length=5).log_inside(torch.zeros((1, 5, 1)).double()).exp()
    inside = inside[0, :, 0]
    catalan = [1, 1, 2, 5, 14]
    wanted = [c * 0.25 ** (n - 1) * 0.75**n for n, c in enumerate(catalan, 1)]
    torch.testing.assert_close(inside, torch.tensor(wanted).double())


def derivations(cfg, symbol, budget):
    """Every string of at most `budget` words with its probability, by expanding rules."""
    found = {}
    for word in range(cfg.words):
        p = float(cfg.terminal[symbol, word])
        if p > 0:
            found[word,] = found.get((word,), 0.0) + p
    if budget < 2:
        return found
    for left, right in itertools.product(range(cfg.symbols), repeat=2):
        p = float(cfg.binary[symbol, left, right])
        if p == 0:
            continue
        for x, q in derivations(cfg, left, budget - 1).items():
            for y, r in derivations(cfg, right, budget - len(x)).items():
                if len(x) + len(y) <= budget:
                    found[x + y] = found.get(x + y, 0.0) + p * q * r
    return found


@pytest.mark.parametrize("name", list(examples()))
def test_by_expanding_every_rule(name):
    cfg = examples()[name]
    found = derivations(cfg, 0, cfg.length)
    total = sum(found.values())
    wanted = {x + (cfg.end_token,) * (cfg.length - len(x)): p / total for x, p in found.items()}
    got = {x: p for x, p in Table.of(cfg).as_dict().items() if p > 0}
    assert got == pytest.approx(wanted)


def test_a_grammar_of_brackets_is_the_dyck_law():
    """S → one pair | S S. Depth 1 only: S → o c, so both laws are geometric in the pairs."""
    cfg = CFG.from_rules(
        {
            "S": {("O", "C"): 0.7, ("S", "T"): 0.3},
            "T": {("O", "C"): 1.0},
            "O": {"[": 1.0},
            "C": {"]": 1.0},
        },
        length=6,
    )
    dyck = Dyck.complete(types=1, max_depth=1, length=6, q=0.5, stop=0.7)
    torch.testing.assert_close(Table.of(cfg).log_probs, Table.of(dyck).log_probs)


def test_sentences_read_well():
    cfg = examples()["sentences"]
    tokens = cfg.sample(50, TorchRng(0))
    for sentence in cfg.text(tokens):
        words = sentence.split()
        assert words[0] == "cat"
        assert words[-1] == "runs"
    assert torch.isfinite(cfg.log_prob(tokens)).all()


def test_long_strings_do_not_underflow():
    rules = {"S": {("S", "S"): 0.49} | {f"w{i}": 0.51 / 200 for i in range(200)}}
    cfg = CFG.from_rules(rules, length=150)
    tokens = torch.arange(150)[None]
    assert -1200 < cfg.log_prob(tokens).item() < -700
    # Rare rules: Catalan(119) trees of (1e-4)^119 (1 - 1e-4)^120 each.
    rare = CFG.from_rules({"S": {("S", "S"): 1e-4, "a": 1 - 1e-4}}, length=120)
    tokens = torch.zeros((1, 120), dtype=torch.long)
    trees = math.lgamma(239) - math.lgamma(120) - math.lgamma(121)
    wanted = trees + 119 * math.log(1e-4) + 120 * math.log1p(-1e-4)
    total = rare.log_prob(tokens).item() + rare._spans[:, 0].logsumexp(0).item()
    assert total == pytest.approx(wanted, rel=1e-10)
    assert rare.next_token_log_probs(tokens[:, :119]).exp()[0, 0].item() > 0


# ------------------------------------------------------------------ rare words and ends


def rare_end(p):
    """Strings a and aa; a alone, that is an end after one word, has probability p."""
    return {"S": {"a": p, ("A", "A"): 1 - p}, "A": {"a": 1.0}}


def rare_everything(p):
    """Strings of 1 to 4 words, in which ends, splits and the word b are all rare."""
    return {
        "S": {"a": p, ("A", "T"): 1 - 2 * p, ("S", "S"): p},
        "T": {("A", "A"): 1 - p, ("T", "S"): p},
        "A": {"a": 1 - p, "b": p},
    }


def log_fraction(x):
    """log of a fraction of any size, to the last digits."""
    if x == 0:
        return -math.inf
    bits = x.numerator.bit_length() - x.denominator.bit_length()
    return math.log(x / Fraction(2) ** bits) + bits * math.log(2)


def exact_strings(rules, length):
    """Every padded string with its exact probability, by expanding rules in fractions."""
    cfg = CFG.from_rules(rules, length)
    names, words = list(rules), cfg.word_names

    def expand(symbol, budget):
        found = {}
        for right, p in rules[symbol].items():
            if isinstance(right, str):
                found[words.index(right),] = found.get((words.index(right),), 0) + Fraction(p)
            elif budget > 1:
                for x, q in expand(right[0], budget - 1).items():
                    for y, r in expand(right[1], budget - len(x)).items():
                        found[x + y] = found.get(x + y, 0) + Fraction(p) * q * r
        return found

    strings = expand(names[0], length)
    total = sum(strings.values())
    pad = (cfg.end_token,)
    return cfg, {x + pad * (length - len(x)): p / total for x, p in strings.items()}


def worst(got, wanted):
    """Largest difference of logarithms, which is a relative error of probabilities.

    Below 1e-300 it is counted in units of the logarithm itself, whose own rounding grows.
    """
    pairs = [(g, w) for g, w in zip(got, wanted, strict=True) if g != w]
    return max((abs(g - w) / max(1.0, -w / 700) for g, w in pairs), default=0.0)


slow = pytest.mark.slow
RARE = [0.3, 1e-300, *(pytest.param(p, marks=slow) for p in (1e-12, 1e-18, 1e-100, 1e-200))]


@pytest.mark.parametrize("p", RARE)
@pytest.mark.parametrize("rules", [rare_end, rare_everything])
def test_rare_words_and_ends_against_fractions(rules, p):
    """Probabilities down to p^4, far below the smallest float, in every conditional."""
    length = 2 if rules is rare_end else 4
    cfg, strings = exact_strings(rules(p), length)
    support = torch.tensor(list(strings))
    wanted = [log_fraction(q) for q in strings.values()]
    assert worst(cfg.log_prob(support).tolist(), wanted) < 1e-12
    for t in range(length):
        for prefix in {x[:t] for x in strings}:
            fitting = {x: q for x, q in strings.items() if x[:t] == prefix}
            mass = sum(fitting.values())
            law = [
                log_fraction(sum(q for x, q in fitting.items() if x[t] == token) / mass)
                for token in range(cfg.vocab_size)
            ]
            rows = torch.tensor([prefix]).long().reshape(1, t)
            assert worst(cfg.next_token_log_probs(rows)[0].tolist(), law) < 1e-12
    for hidden in itertools.product([False, True], repeat=length):
        for shown in strings:
            fitting = {
                x: q
                for x, q in strings.items()
                if all(h or x[i] == shown[i] for i, h in enumerate(hidden))
            }
            mass = sum(fitting.values())
            got = cfg.masked_log_probs(torch.tensor([shown]), torch.tensor([hidden]))[0]
            for i in range(length):
                law = [
                    log_fraction(sum(q for x, q in fitting.items() if x[i] == token) / mass)
                    for token in range(cfg.vocab_size)
                ]
                assert worst(got[i].tolist(), law) < 1e-12


def test_a_rare_end_worked_value():
    """p(end | a) = p to rounding, since p(a) = p and p(aa) = 1 - p."""
    for p in (1e-12, 1e-18, 1e-300):
        cfg = CFG.from_rules(rare_end(p), length=2)
        law = cfg.next_token_log_probs(torch.tensor([[0]])).exp()[0]
        assert law.tolist() == pytest.approx([1 - p, p], rel=1e-12)


def test_text_reads_tokens_of_the_grammar_only():
    cfg = examples()["two words"]
    assert cfg.text(torch.tensor([[0, 1, 2, 2]])) == ["a b"]
    for token in (-1, 3):
        with refused("hidden"):
            cfg.text(torch.tensor([[token]]))


def test_bad_input_is_explained():
    with pytest.raises(ValueError, match="rules of symbol 0 have total probability 0.9"):
        CFG.from_rules({"S": {"a": 0.9}}, length=2)
    with pytest.raises(ValueError, match="Chomsky normal form"):
        CFG.from_rules({"S": {("S", "T"): 0.5, "a": 0.5}}, length=2)
    with refused("length"):
        CFG.from_rules({"S": {("A", "A"): 1.0}, "A": {"a": 1.0}}, length=1)
    with refused("binary"):
        CFG.from_rules({"S": {"a": 1.5, "b": -0.5}}, length=1)
