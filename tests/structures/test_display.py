"""Every structure prints one line that says its sizes, and has a small page for notebooks."""

import importlib
import pkgutil
import re
from xml.etree import ElementTree

import pytest
import torch

import triptych.structures
from triptych.structures.brackets.dyck import Dyck
from triptych.structures.brackets.faulty import CarelessBrackets, LeakyBrackets
from triptych.structures.cfg import CFG
from triptych.structures.constraints import Knapsack
from triptych.structures.hidden_markov.hmm import HMM
from triptych.structures.hidden_markov.memory_hmm import MemoryHMM
from triptych.structures.ising import Ising
from triptych.structures.markov import Markov
from triptych.structures.parity import HiddenParity
from triptych.structures.topics import LDA, Topics
from triptych.structures.uniform import Uniform

EXAMPLES = {
    f"{info.name.rpartition('.')[2]}: {name}": example
    for info in pkgutil.walk_packages(triptych.structures.__path__, "triptych.structures.")
    for name, example in getattr(importlib.import_module(info.name), "examples", dict)().items()
}
LARGE = {
    "HMM": HMM.random(60, 50, 128, seed=0),
    "MemoryHMM": MemoryHMM.random(3, 3, 5, 40, 64, seed=0),
    "Dyck": Dyck.prefixes(4, 5, 64, q=0.5),
    "Dyck of many types": Dyck.prefixes(8, 3, 16, q=0.5),
    "Ising": Ising.grid(12, 12, 0.4),
    "Topics": Topics(10_000, 1000, 5, 128),
    "LDA": LDA(100, 10, 0.1, 10, 300),
    "Uniform": Uniform(50_000, 1024),
    "HiddenParity": HiddenParity.random(300, seed=0),
    "Leaky": LeakyBrackets(Dyck.prefixes(2, 3, 12, q=0.5), 0.1),
    "Careless": CarelessBrackets(Dyck.prefixes(2, 3, 12, q=0.5), 0.1),
}


@pytest.mark.parametrize("name", [*EXAMPLES, *LARGE])
def test_a_repr_is_one_short_line_and_the_page_is_small(name):
    structure = (EXAMPLES | LARGE)[name]
    text, page = repr(structure), structure._repr_html_()
    assert text.startswith(f"{type(structure).__name__}(")
    assert "\n" not in text
    assert "tensor" not in text + page
    assert len(text) < 120
    ElementTree.fromstring(page)  # well formed: it is XML too
    assert type(structure).__name__ in page
    assert len(page) < 20_500
    for word in ("<script", "http://", "https://", "src="):
        assert word not in page.replace("http://www.w3.org/2000/svg", "")


def test_reprs_word_for_word(unchecked_shapes):
    said = [
        HMM.random(25, 10, 128, seed=0),
        MemoryHMM.random(3, 2, 4, 10, 8, seed=0),
        Markov([1.0], [[1.0]], 3),
        Topics(3, 2, 2, 4),
        LDA(3, 2, 0.1, 2, 5),
        Dyck.prefixes(2, 3, 8, q=0.5),
        Dyck.complete(1, 1, 6, q=0.5),
        CFG.from_rules({"S": {("S", "S"): 0.25, "a": 0.75}}, 6),
        Ising.chain(5, 0.3),
        Uniform(2, 4),
        HiddenParity(torch.tensor([1, 0])),
        Knapsack((3, 5, 2), 5),
    ]
    assert [repr(thing) for thing in said] == [
        "HMM(25 states, 10 symbols, length 128)",
        "MemoryHMM(2 cells of 3 values, 4 syntax states, 10 symbols, length 8)",
        "Markov(1 symbol, length 3)",
        "Topics(2 of 3 topics, 2 words each, length 4)",
        "LDA(3 topics, 2 words each, concentration 0.1, length 2 to 5)",
        "Dyck(2 bracket types, depth at most 3, length 8)",
        "Dyck(1 bracket type, depth at most 1, length 6, with an end token)",
        "CFG(1 symbol, 1 word, length at most 6)",
        "Ising(5 spins, 4 couplings)",
        "Uniform(2 symbols, length 4)",
        "HiddenParity(secret 10, length 3)",
        "Knapsack(weights 3, 5, 2; capacity 5)",
    ]


def numbers_in(page: str) -> list[str]:
    """What is written in the cells of the heat maps."""
    return re.findall(r'<text [^>]*fill="#[^>]*>([^<]+)<', page)


def test_the_matrices_are_those_of_the_model(unchecked_shapes):
    page = Markov([0.25, 0.75], [[0.9, 0.1], [0.3, 0.7]], 3)._repr_html_()
    assert numbers_in(page) == [".25", ".75", ".90", ".10", ".30", ".70"]
    page = Ising([[0.0, -0.5], [-0.5, 0.0]], [2.0, 0.0])._repr_html_()
    assert numbers_in(page) == ["0", "−.5", "−.5", "0", "2", "0"]
    page = Topics(2, 2, 1, 4)._repr_html_()
    assert numbers_in(page) == [".50", ".50", "0", "0", "0", "0", ".50", ".50"]


def test_likely_strings_have_their_probabilities():
    """Two types, D = 1, N = 2: [] and () each with ½. One spoken word: "a" with 16/19."""
    page = Dyck.prefixes(2, 1, 2, q=0.5)._repr_html_()
    assert re.findall(r"pre\">([^<]+)<", page) == ["[]", "()"]
    assert page.count(">0.5<") == 2
    page = CFG.from_rules({"S": {("S", "S"): 0.25, "a": 0.75}}, 2)._repr_html_()
    assert re.findall(r"pre\">([^<]+)<", page) == ["a", "a a"]
    assert ">0.842<" in page
    page = HiddenParity(torch.tensor([1, 0]))._repr_html_()
    assert re.findall(r"pre\">([^<]+)<", page) == ["001", "010", "101", "111"]


def test_names_of_words_are_escaped():
    grammar = CFG.from_rules({"S": {("S", "S"): 0.25, "<b>&": 0.75}}, 2)
    page = grammar._repr_html_()
    assert "<b>" not in page
    assert "&lt;b&gt;&amp;" in page


def test_a_large_structure_shows_strings_that_were_drawn():
    large = Dyck.prefixes(4, 4, 40, q=0.5)
    page = large._repr_html_()
    texts = re.findall(r"pre\">([^<]+)<", page.replace("&lt;", "‹").replace("&gt;", "›"))
    drawn = set(large.text(large.sample(6, rng=0)))
    assert {text.replace("‹", "<").replace("›", ">") for text in texts} == drawn
