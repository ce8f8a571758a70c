"""What a user sees of objects: short texts, and small pages that are well formed and escaped."""

import math
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
import torch
from tests.support.odd_arguments import OBJECTS

from triptych.core.decoders import RecomputingDecoder
from triptych.core.display import (
    MAX_BARS,
    MAX_CELLS,
    bars,
    card,
    counted,
    cut,
    facts_table,
    heat_map,
    name_of,
    number,
    records_table,
)
from triptych.core.enumeration import ExactLaw
from triptych.core.estimates import Estimate, mean
from triptych.core.mask_laws import MaskLaw
from triptych.core.randomness import TorchRng
from triptych.core.table import Table
from triptych.models.bags import BagLM
from triptych.models.constructions import compiled_map
from triptych.models.language_models import CausalLM, MaskedLM
from triptych.models.transformer import Shape, Transformer

VOID = {"br", "img", "hr", "input", "meta", "link"}


class Pairs(HTMLParser):
    """Every opened tag is closed, in order; scripts and outside things are noted."""

    def __init__(self):
        super().__init__()
        self.open, self.bad, self.text = [], [], []

    def handle_starttag(self, tag, attributes):
        if tag in ("script", "link", "iframe", "img") or any(
            name in ("src", "href") or name.startswith("on") for name, _ in attributes
        ):
            self.bad.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def text_of(page: str) -> str:
    """The text of a well-formed page, which must be small and plain."""
    parser = Pairs()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    assert parser.bad == []
    for svg in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        ElementTree.fromstring(svg)
    assert "tensor(" not in page
    assert len(page) < 20_500
    return " ".join(parser.text)


# ------------------------------------------------------------------ pieces


def test_short_texts():
    assert counted(1, "state") == "1 state"
    assert counted(25, "state") == "25 states"
    assert counted(2, "query", "queries") == "2 queries"
    assert cut("abcdef", 4) == "abc…"
    assert cut("abcd", 4) == "abcd"
    wanted = {0.25: "0.25", -3.0: "−3", 12345.6: "12346", 1.2e-5: "1.2e−5", 3e9: "3e9", 0.0: "0"}
    assert {value: number(value) for value in wanted} == wanted
    assert number(math.inf) == "inf"
    assert number(-math.inf) == "−inf"


def test_names_of_things():
    assert name_of(Table.random(2, 2, seed=0)) == "Table(2 symbols, length 2, 4 sequences)"
    assert name_of(test_short_texts) == "test_short_texts"
    assert name_of(object()) == "object"
    assert name_of(torch.zeros(9, 9)) == "Tensor"


def test_facts_and_records_are_escaped():
    page = card("<b>&", facts_table({"<i>": "<script>alert(1)</script>", "value": 0.125}))
    assert "<script" not in page
    assert "<i>" not in page
    assert "<b>" not in page
    text = text_of(page)
    assert "0.125" in text
    assert "<script>alert(1)</script>" in text
    text = text_of(records_table(["<a>"], [["<x>"], [2.0]], "and 3 more"))
    assert "<a>" in text
    assert "<x>" in text
    assert "and 3 more" in text


def test_bars_are_in_proportion_and_few():
    page = bars([("a", 0.5), ("<b>", 0.25), ("none", 0.0)], title="odds", more=2)
    assert re.findall(r"width:([\d.]+)px", page) == ["140.0", "70.0", "0.0"]
    text = text_of(page)
    assert "0.25" in text
    assert "<b>" in text
    assert "and 2 more" in text
    many = bars([(str(k), 1.0) for k in range(40)])
    assert len(re.findall("width:140.0px", many)) == MAX_BARS
    assert f"and {40 - MAX_BARS} more" in many
    text_of(bars([("nothing", 0.0), ("inf", math.inf)]))


def test_a_heat_map_has_a_square_of_the_right_colour_for_every_cell():
    """0 is white, the largest is dark blue, its negative orange, and half of it between."""
    page = heat_map(torch.tensor([[0.0, 2.0], [1.0, -2.0]]).double(), title="t <", rows="r")
    text = text_of(page)
    assert "t <" in text
    found = dict(re.findall(r'<path fill="(#\w+)" d="([^"]+)"', page))
    assert found["#f4f0e6"] == "M0 0h1v1h-1"  # (0, 0), where the value is 0
    assert found["#0b4678"] == "M1 0h1v1h-1"
    assert found["#b05410"] == "M1 1h1v1h-1"
    # half: 244 + 0.5 (11 - 244) = 127.5, 240 + 0.5 (70 - 240) = 155, 230 + 0.5 (120 - 230) = 175
    assert found["#809baf"] == "M0 1h1v1h-1"
    assert re.findall(r'<text [^>]*fill="#[^>]*>([^<]+)<', page) == ["0", "2", "1", "−2"]


def test_a_large_matrix_is_cut_to_a_corner_and_says_so():
    page = heat_map(torch.rand(300, 40, dtype=torch.float64), title="big")
    assert f"the first {MAX_CELLS} x {MAX_CELLS} of 300 x 40" in text_of(page)
    assert sum(int(width) for width in re.findall(r"h(\d+)v1", page)) == MAX_CELLS**2
    assert len(page) < 12_000
    corner = heat_map(torch.rand(3, 4, dtype=torch.float64), size=(3, 9))
    assert "the first 3 x 4 of 3 x 9" in text_of(corner)


@pytest.mark.parametrize("value", [0.0, math.nan, math.inf, -math.inf, 1e-320, -1e300])
def test_a_heat_map_of_odd_numbers(value):
    text_of(heat_map(torch.full((2, 3), value, dtype=torch.float64)))


# ------------------------------------------------------------------ objects of core and models

NAMES = {  # records of results print their tensors; guided generation has its own
    "Posteriors": None,
    "Costs": None,
    "Result": None,
    "Generation": None,
    "VisitedTree": None,
}


@pytest.mark.parametrize("name", [name for name in OBJECTS if name not in NAMES])
def test_a_repr_is_one_line_that_names_the_class(name):
    text = repr(OBJECTS[name]())
    assert text.startswith(f"{name}(")
    assert "\n" not in text
    assert "tensor(" not in text
    assert " object at 0x" not in text
    assert len(text) < 120


def test_networks_and_decoders_say_their_sizes():
    net = Transformer(Shape(4, 6, width=8, layers=1, heads=2), seed=0)
    size = sum(parameter.numel() for parameter in net.parameters())
    shown = "1 layer, 2 heads, width 8, 4 symbols, length 6, causal"
    assert repr(net) == f"Transformer({shown}, {size:,} parameters)"
    lm = CausalLM(net)
    assert repr(lm) == f"CausalLM(3 symbols, length 6, 1 layer of width 8, {size:,} parameters)"
    masked = Transformer(Shape(4, 6, width=8, layers=1, heads=2, causal=False), seed=0)
    assert repr(MaskedLM(masked)).startswith("MaskedLM(3 symbols, length 6, 1 layer")
    decoder = RecomputingDecoder(Table.random(2, 3, seed=0), 2)
    decoder.append(torch.tensor([1]), torch.tensor([0]))
    name = "Table(2 symbols, length 3, 8 sequences)"
    assert repr(decoder) == f"RecomputingDecoder({name}, 2 rows of 0 to 1 tokens)"
    swap = compiled_map(torch.tensor([[1], [0]]), 2)
    assert repr(swap) == "ParallelTransformer(2 symbols, length 1, 2 blocks, width 9)"
    assert repr(swap.blocks[0]) == "Block(width 9, 2 hidden units)"
    flat = Shape(
        5, 3, width=5, layers=1, heads=1, causal=False, positions="none", residual=False,
        norm="none", feedforward=0,
    )  # fmt: skip
    assert repr(BagLM(Transformer(flat, seed=0), 3)) == "BagLM(5 symbols, length 3)"


def test_a_law_prints_what_fits_and_shows_the_rest_in_a_page():
    assert repr(ExactLaw({"a": 0.25, "b": 0.75})) == "ExactLaw('b': 0.75, 'a': 0.25)"
    many = ExactLaw({(k, k): 0.01 for k in range(100)}, missing=0.0)
    assert len(repr(many)) < 120
    assert repr(many).endswith(" more)")
    assert "missing 0.5" in repr(ExactLaw({0: 0.5}, missing=0.5))
    assert repr(ExactLaw({"x" * 500: 1.0})) == "ExactLaw(1 outcome)"
    text = text_of(many._repr_html_())
    assert "and 88 more" in text
    assert "<b>" in text_of(ExactLaw({"<b>": 1.0})._repr_html_())


def test_a_table_shows_its_most_likely_sequences():
    probs = torch.tensor([0.5, 0.0, 0.375, 0.125], dtype=torch.float64)
    table = Table(2, 2, probs.log())
    assert table.likeliest(3) == [
        ((0, 0), 0.5),
        ((1, 0), pytest.approx(0.375)),
        ((1, 1), pytest.approx(0.125)),
    ]
    assert table.likeliest(9) == table.likeliest(3), "none of probability 0"
    text = text_of(table._repr_html_())
    assert re.search(r"00\s+0\.5\s+10\s+0\.375\s+11\s+0\.125", text)
    assert "01" not in text.split("most likely")[1]
    # entropy ½ log 2 + ⅜ log 8/3 + ⅛ log 8 = 0.974
    assert "0.974" in text
    large = Table.random(3, 8, seed=0)._repr_html_()
    assert f"and {3**8 - MAX_BARS} more" in text_of(large)


def test_equally_likely_sequences_come_in_order():
    table = Table(2, 2, torch.full((4,), 0.25, dtype=torch.float64).log())
    assert [sequence for sequence, _ in table.likeliest(4)] == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_masks_and_estimates():
    masks = MaskLaw.of_size(3, 2)
    assert repr(masks) == "MaskLaw(3 blocks of 2 positions, length 3)"
    text = text_of(masks._repr_html_())
    assert "■■·" in text
    assert "0.333" in text
    looking = MaskLaw.looking(2, [[0], [0, 1]], lambda x: x.double())
    assert repr(looking) == "MaskLaw(2 blocks of 1 to 2 positions, length 2, looks at the sequence)"
    assert "■■" in text_of(looking._repr_html_())
    assert len(MaskLaw.of_size(16, 8)._repr_html_()) < 20_000
    text = text_of(mean([1.0, 2.0, 3.0])._repr_html_())  # 2 ± 4.30 / √3
    assert "−0.484 to 4.48" in text
    assert "95 % interval" in text
    assert "proven bounds" in text_of(Estimate(1.0, 0.5, 1.5, 0, 1.0)._repr_html_())


def test_an_rng_says_its_seed():
    assert repr(TorchRng(7)) == "TorchRng(seed 7)"
