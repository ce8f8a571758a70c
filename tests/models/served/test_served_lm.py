"""A served model against a small server that follows the protocols, on laws that are known."""

import math
import subprocess
import sys

import pytest
import torch
from tests.support.fake_served import LLAMA, OPENAI, VLLM, FakeServer, PairTokenizer
from tests.support.refusals import refused
from tests.support.toy_guided import Values

from triptych.core.randomness import TorchRng
from triptych.core.streams import RowStreams
from triptych.guidance.guide import Streams, guide
from triptych.inference.guided import adaptive, ancestral, greedy, vgb
from triptych.inference.guided.transforms import Sampling, nucleus
from triptych.models.served.connection import NoServer
from triptych.models.served.served_lm import ModelChanged, ServedLM

VOCAB = 5
PROBS = {  # after the last token; token 0 ends a text
    0: (0.2, 0.2, 0.2, 0.2, 0.2),
    1: (0.1, 0.2, 0.4, 0.1, 0.2),
    2: (0.15, 0.35, 0.1, 0.3, 0.1),
    3: (0.3, 0.3, 0.1, 0.1, 0.2),
    4: (0.05, 0.5, 0.3, 0.1, 0.05),
}


def law(prefix):
    return PROBS[prefix[-1]]


def serve(dialect=LLAMA, **more):
    options = {"vocab_size": VOCAB, "tokenizer": PairTokenizer(), "ends": (0,)}
    return FakeServer(law, dialect=dialect, **{**options, **more})


def connect(server, **more):
    options = {"tokenizer": PairTokenizer(), "patience": 2.0, "timeout": 5.0, "check": False}
    return ServedLM(server.url, **{**options, **more})


def no_b_twice(text):
    return "bb" not in text


@pytest.fixture(params=[LLAMA, VLLM])
def server(request):
    with serve(request.param) as running:
        yield running


# ---------------------------------------------------------------- what a server is asked


def test_a_server_says_what_it_is(server):
    lm = connect(server)
    assert (lm.facts.dialect, lm.facts.model, lm.vocab_size) == (server.dialect, "tiny", VOCAB)
    assert lm.length == server.context
    assert lm.fingerprint == connect(server).fingerprint


def test_every_option_that_changes_the_law_is_sent(server):
    lm = connect(server)
    guide(lm, ["a"], max_new_tokens=2)
    body = server.asked[-1]
    assert body["temperature"] == 1.0
    if server.dialect == LLAMA:
        assert (body["samplers"], body["post_sampling_probs"]) == ([], False)
    else:
        neutral = {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
        assert neutral.items() <= body.items()


def test_sampling_is_done_by_the_server(server):
    lm = connect(server)
    found = guide(
        lm, ["a"] * 8, max_new_tokens=4, sampling=Sampling(temperature=0.5, top_k=1), rng=0
    )
    assert set(found.texts) == {"baba"}  # the likeliest token after each
    if server.dialect == LLAMA:
        assert server.asked[-1]["samplers"] == ["temperature", "top_k"]


def test_tokens_are_ids_both_ways(server):
    """[a, b] and [ab] are one text; the row continues from the one that was drawn."""
    lm = connect(server)
    rows = lm.decoder([[1, 2], [3]])
    rows.draw(torch.tensor([0, 1]), torch.tensor([1, 1]), TorchRng(0))
    assert [
        body["prompt"] for body in sorted(server.asked[-2:], key=lambda b: -len(b["prompt"]))
    ] == [[1, 2], [3]]
    found = ancestral.sample(rows, length=[8, 8], end_token=0, rng=0)
    ids = [[*x] for x in found.completions()]
    assert any(lm.encode([lm.text_of(row)])[0] != row for row in ids)  # the texts would not do
    for row, prompt in zip(ids, ([1, 2], [3]), strict=True):
        sent = [body["prompt"] for body in server.asked if body["prompt"][: len(prompt)] == prompt]
        assert all(each[len(prompt) :] == row[: len(each) - len(prompt)] for each in sent)


def test_the_draws_have_the_law_of_the_model(server):
    """2,000 rows of two tokens: exact binomial tests, failing a right sampler with 1e-6."""
    from scipy.stats import binomtest

    lm = connect(server, ahead=1)
    rows = 400
    found = ancestral.sample(
        lm.decoder([[1]] * rows), length=3, end_token=0, rng=RowStreams(3, torch.arange(rows))
    )
    pairs = [(*x, 0)[:2] for x in found.completions()]
    for first in range(VOCAB):
        count = sum(pair[0] == first for pair in pairs)
        assert binomtest(count, rows, PROBS[1][first]).pvalue > 1e-6 / VOCAB


def test_a_text_depends_on_its_stream_alone(server):
    lm = connect(server)
    prompts = ["a", "ab", "b b"]
    options = {"max_new_tokens": 8, "algorithm": "backtracking", "verifier": no_b_twice}
    together = guide(lm, prompts, rng=5, **options)
    for number, prompt in enumerate(prompts):
        alone = guide(lm, [prompt], rng=Streams(5, [number]), **options)
        assert alone.texts[0] == together.texts[number]


@pytest.mark.parametrize(
    "name",
    [
        "ancestral",
        "rejection",
        "tokenwise",
        "backtracking",
        "best_of_n",
        "blocks",
        "majority",
        "particles",
        "adaptive",
        "vgb",
    ],
)
def test_every_algorithm_runs(name, server):
    lm = connect(server)
    verifier = None if name == "ancestral" else no_b_twice
    found = guide(lm, ["a", "ab"], verifier, name, max_new_tokens=6, rng=1)
    assert all(found.complete)
    if verifier is not None:
        assert all(map(no_b_twice, found.texts)) or name == "backtracking"
    assert found.totals["requests"] > 0


def test_several_requests_are_in_flight(server):
    server.delay = 0.02
    lm = connect(server, in_flight=4)
    guide(lm, ["a"] * 12, max_new_tokens=2)
    assert server.most_at_once == 4


def test_backtracking_asks_once_for_each_stride(server):
    """8 tokens, a rule that accepts everything, stride 4: two requests and 8 tokens."""
    lm = connect(server)
    server.ends = set()
    found = guide(lm, ["a"], lambda text: True, "backtracking", max_new_tokens=8)
    assert (found.totals["requests"], found.totals["drawn"]) == (2, 8)


def test_a_row_is_over_by_the_word_of_the_server():
    """The server ends texts by token 4, of which our tokenizer knows nothing."""
    with serve(ends=(0, 4)) as server:
        lm = connect(server)
        found = guide(lm, ["a"] * 30, max_new_tokens=10, rng=2)
        ended = [text for text in found.texts if text.endswith(" ")]
        assert ended
        assert all(found.complete)
        assert all(" " not in text[:-1] for text in found.texts)


@pytest.mark.slow
def test_log_probabilities_that_a_server_leaves_out_are_asked_for():
    """Token 2 stands for half a character; nothing is drawn again, so its share stays."""
    with serve(half=(2,)) as server:
        lm = connect(server)
        rows = torch.zeros(300, dtype=torch.long)
        said = lm.decoder([[1]]).draw(rows, 1 + torch.arange(300) % 2, TorchRng(0))
        for tokens, values in zip(said.tokens.tolist(), said.log_probs.tolist(), strict=True):
            assert values[0] == pytest.approx(math.log(PROBS[1][tokens[0]]))
        assert 60 < int((said.tokens[:, 0] == 2).sum()) < 180  # 120 expected, 8.5 the deviation
        tokens, log_probs = lm.decoder([[1]]).top_law(torch.tensor([0]), 2)
        assert tokens[0, 0] == 2
        assert log_probs[0, 0].item() == pytest.approx(math.log(0.4))


# ---------------------------------------------------------------- what is refused


def test_plain_openai_is_refused():
    with serve(OPENAI) as server, refused("dialect"):
        connect(server)


def test_what_needs_laws_is_refused(server):
    lm = connect(server)
    with refused("decoder"):
        greedy.sample(lm.decoder([[1]]), Values(), length=3, rng=0)
    decoder = lm.decoder([[1]])
    with refused("transform"):
        ancestral.sample(decoder, length=3, transform=lambda laws: laws, rng=0)
    with refused("transform"):
        ancestral.sample(lm.decoder([[1]]), length=3, transform=nucleus(0.5), rng=0)
    cut = Sampling(top_p=0.5).transform()
    for module, own in ((adaptive, {"n": 2}), (vgb, {"steps": 4})):
        with refused("decoder"):
            module.sample(lm.decoder([[1]]), Values(), length=3, transform=cut, rng=0, **own)


def test_orders_of_samplers_that_differ_are_refused():
    with serve(VLLM) as server, refused("sampling"):
        guide(connect(server), ["a"], max_new_tokens=1, sampling=Sampling(top_p=0.9, min_p=0.1))


@pytest.mark.parametrize(
    ("parameter", "options"),
    [
        ("dialect", {"dialect": "tgi"}),
        ("model", {"model": "another"}),
        ("api_key", {"api_key": "a\nb"}),
        ("in_flight", {"in_flight": 0}),
        ("timeout", {"timeout": 0}),
        ("patience", {"patience": -1}),
        ("ahead", {"ahead": 0}),
        ("vocab_size", {"vocab_size": 1}),
    ],
)
def test_odd_options(parameter, options):
    with serve() as server, refused(parameter):
        connect(server, **options)


@pytest.mark.parametrize(
    "url",
    ["", "127.0.0.1:80", "ftp://a", "http://me:secret@host", "http://host?key=1", "http://h:x"],
)
def test_odd_urls(url):
    with refused("url"):
        ServedLM(url)


def test_a_wrong_tokenizer_is_found_before_the_first_prompt(server):
    class Other(PairTokenizer):
        words = ("", "b", "a", "ab", " ")

    with refused("tokenizer"):
        connect(server, tokenizer=Other(), check=True)


def test_a_sampler_of_the_server_is_found_before_the_first_prompt():
    wide = [(40 - k) / 820 for k in range(40)]

    def serving(kept):
        return FakeServer(lambda prefix: wide, vocab_size=40, kept=kept)

    with serving(None) as server:
        ServedLM(server.url, bos=False)
    with serving(8) as server, refused("url"):
        ServedLM(server.url, bos=False)


# ---------------------------------------------------------------- faults


@pytest.mark.parametrize("fault", [429, 500, 503, "drop", "cut", "nonsense"])
def test_faults_that_pass_change_nothing(fault, server):
    lm = connect(server)
    options = {"max_new_tokens": 6, "algorithm": "tokenwise", "verifier": no_b_twice, "rng": 3}
    wanted = guide(lm, ["a", "ab", "b"], **options).texts
    server.faults = [fault, None, fault]
    assert guide(lm, ["a", "ab", "b"], **options).texts == wanted
    assert server.faults == []


def test_faults_while_connecting_pass_too(server):
    server.faults = ["drop", 503, "cut"]
    assert connect(server).vocab_size == VOCAB


def test_an_answer_that_takes_too_long_is_asked_for_again(server):
    lm = connect(server)
    wanted = guide(lm, ["a"], max_new_tokens=4).texts
    quick = connect(server, timeout=0.2)
    server.faults = ["slow"]
    assert guide(quick, ["a"], max_new_tokens=4).texts == wanted


def test_a_server_that_stays_away_is_one_sentence(server):
    lm = connect(server, patience=0.3)
    server.faults = [503] * 50
    with pytest.raises(NoServer):
        guide(lm, ["a"], max_new_tokens=4)


def test_answers_that_never_can_be_read_are_one_sentence():
    with serve() as server:
        lm = connect(server)
        server.faults = ["short"] * 9
        with pytest.raises(NoServer):
            guide(lm, ["a"], max_new_tokens=4)


def test_a_server_that_starts_again_goes_on(server):
    lm = connect(server)
    wanted = guide(lm, ["a", "b"], max_new_tokens=6, rng=1).texts
    server.__exit__()
    server.__enter__()
    assert guide(lm, ["a", "b"], max_new_tokens=6, rng=1).texts == wanted


def test_another_model_under_the_same_name_is_found(server):
    lm = connect(server)
    server.__exit__()
    server.law = lambda prefix: (0.96, 0.01, 0.01, 0.01, 0.01)
    server.__enter__()
    with pytest.raises(ModelChanged):
        guide(lm, ["a"], max_new_tokens=2)


def test_another_name_is_found(server):
    lm = connect(server)
    server.model = "another"
    with pytest.raises(ModelChanged):
        guide(lm, ["a"], max_new_tokens=2)


# ---------------------------------------------------------------- the key


def test_a_key_is_sent_and_shown_nowhere(server, caplog, capsys):
    key = "sk-very-secret-1234"
    server.key = key
    lm = connect(server, api_key=key)
    guide(lm, ["a"], max_new_tokens=2)
    assert set(server.keys) == {f"Bearer {key}"}
    shown = [repr(lm), repr(lm.server), str(lm.facts), lm.fingerprint, repr(lm.decoder(["a"]))]
    server.faults = [503] * 99
    lm.server.patience = 0.2
    with pytest.raises(NoServer) as away:
        guide(lm, ["a"], max_new_tokens=2)
    server.key, server.faults = "another", []
    with refused("api_key") as wrong:
        guide(lm, ["a"], max_new_tokens=2)
    with refused("api_key") as odd:
        connect(server, api_key=key + "\n")
    shown += [str(each.value) for each in (away, wrong, odd)]
    shown += [caplog.text, *capsys.readouterr()]
    assert not any(key in text for text in shown)


def test_a_key_that_is_missing_is_a_sentence(server):
    server.key = "sk-very-secret-1234"
    with refused("api_key"):
        connect(server)


def test_triptych_alone_imports_no_client():
    program = "import sys, triptych; print('http.client' in sys.modules)"
    script = [sys.executable, "-c", program]
    assert subprocess.run(script, capture_output=True, text=True, check=True).stdout == "False\n"
