"""How a result shows itself: one line, and a page for a notebook."""

from html.parser import HTMLParser

from triptych.core.decoders import RecomputingDecoder
from triptych.inference.guided import rejection
from triptych.structures.uniform import Uniform
from triptych.verifiers.exact import Rule


def generated(rows=12):
    decoder = RecomputingDecoder(Uniform(vocab_size=2, length=3), rows)
    return rejection.sample(decoder, Rule(lambda x: x[0] == 1), length=3, attempts=1, rng=0)


def test_a_line():
    result = generated()
    accepted = int(result.accepted.sum())
    assert 0 < accepted < 12
    assert repr(result) == (
        f"Result(12 rows, {accepted} complete, {accepted} accepted, 36 generator calls)"
    )


def test_a_page_has_ten_rows_and_the_costs():
    page = generated()._repr_html_()
    HTMLParser().feed(page)
    assert page.count("<tr") == 1 + 10 + 11
    assert "and 2 more" in page
    assert "attempts used up" in page
    assert "tensor(" not in page
    assert "more" not in generated(3)._repr_html_()
