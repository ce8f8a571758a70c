"""Every contract: its right sampler keeps it, its wrong one breaks it, and its worked value."""

import itertools
import math

import pytest
import torch

from triptych.laws import law_of
from triptych.laws.contract import all_contracts, judge
from triptych.laws.contracts import (
    ancestral,
    bayes_risk,
    beam,
    best_of_n,
    chains,
    constrained,
    importance,
    rejection,
    remasking,
    speculative,
    unmasking,
)

CONTRACTS = all_contracts()


@pytest.mark.parametrize("name", CONTRACTS)
def test_the_right_sampler_keeps_it_and_the_wrong_one_breaks_it(name):
    contract = CONTRACTS[name]
    kept = judge(contract, contract.right)
    assert (kept.says, kept.counterexample) == ("keeps its promise", "")
    assert kept.distance < 1e-12
    broken = judge(contract, contract.wrong)
    assert broken.says == "breaks its promise"
    assert broken.distance > 1e-3
    assert broken.counterexample
    if contract.kind == "best":
        first, second = sorted(contract.target.values(), reverse=True)[:2]
        assert first > second + 1e-3
    else:
        assert abs(sum(contract.target.values()) - 1) < 1e-12


def test_blocks_keep_the_contract_of_speculative_sampling():
    assert judge(CONTRACTS["speculative"], speculative.by_blocks).says == "keeps its promise"


def test_a_sampler_that_cannot_be_entered():
    verdict = judge(CONTRACTS["top_k"], lambda logits, top_k: torch.rand(3).sum() > 1)
    assert (verdict.says, verdict.distance) == ("not entered", None)


def test_worked_values():
    halves = torch.tensor([0.5, 0.25, 0.125, 0.125], dtype=torch.float64)
    assert ancestral.warped(halves.log(), top_p=0.6).tolist() == pytest.approx([2 / 3, 1 / 3, 0, 0])
    assert best_of_n.law(torch.tensor([0.5, 0.5]), torch.tensor([0.0, 1.0]), 2)[1] == 0.75
    assert importance.resampled_law(1) == pytest.approx(dict(enumerate([0.5, 0.3, 0.2])))
    assert sum(rejection.law().values()) == pytest.approx(1.0)


def test_speculative_by_hand():
    p, q = torch.tensor([[0.25, 0.75]] * 2).double(), torch.tensor([[0.75, 0.25]]).double()
    accepted = law_of(lambda: len(speculative.one_by_one(p, q, torch.multinomial(q, 1)[0])) > 1)
    assert accepted.probs[True] == pytest.approx(0.5, abs=1e-12)


def test_chains_by_hand():
    law = torch.tensor([1 / 3, 2 / 3], dtype=torch.float64)
    flip = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    assert law_of(lambda: chains._metropolis(0, law, flip)).probs == {1: 1.0}
    assert law_of(lambda: chains._metropolis(1, law, flip)).probs[0] == pytest.approx(0.5)


def test_unmasking_by_hand():
    def equal_coins(tokens, position):
        other = tokens[1 - position]
        return torch.tensor([0.5, 0.5] if other is None else [1.0 - other, float(other)])

    law = law_of(lambda: unmasking._right(equal_coins, 2))
    assert law.probs == {(0, 0): 0.5, (1, 1): 0.5}


def test_masking_by_hand():
    """Two fair bits, 11 forbidden: masking gives 1/4, 1/4, 1/2."""

    def fair(prefix):
        return torch.tensor([0.5, 0.5])

    def no_ones(prefix):
        return prefix != (1, 1)

    masked = law_of(lambda: constrained._masking(fair, no_ones, 2))
    assert masked.probs == {(0, 0): 0.25, (0, 1): 0.25, (1, 0): 0.5}
    given = law_of(lambda: constrained._right(fair, no_ones, 2))
    assert given.total_variation(dict.fromkeys(masked.probs, 1 / 3)) < 1e-7
    broken = judge(CONTRACTS["constrained"], constrained._masking)
    assert broken.facts["nats"] > 0.01


def test_allowed_prefixes_are_those_with_a_completion():
    texts = [x for x in itertools.product(range(2), repeat=3) if constrained.allowed(x)]
    for n in range(3):
        for prefix in itertools.product(range(2), repeat=n):
            ends = any(text[:n] == prefix and constrained.allowed(text[:2]) for text in texts)
            assert constrained.allowed(prefix) == ends


def test_the_best_by_hand():
    """01 against 01, 01 and 02: (1 + 1 + 1/2) / 3. The four ways to choose are four candidates."""
    samples = [(0, 1), (0, 1), (0, 2)]
    assert bayes_risk.mean_utilities([(0, 1)], samples, bayes_risk.share) == {(0, 1): 5 / 6}
    swapped = max(
        bayes_risk.CANDIDATES,
        key=lambda c: sum(bayes_risk.share(y, c) for y in bayes_risk.SAMPLES),
    )
    likeliest = max(bayes_risk.COUNTS, key=bayes_risk.COUNTS.__getitem__)
    given = bayes_risk.CANDIDATES, bayes_risk.SAMPLES, bayes_risk.share
    assert len({swapped, likeliest, bayes_risk._right(*given), bayes_risk._once_each(*given)}) == 4


def test_beams_by_hand():
    """Greedy: 0 1 0 with 0.192; two beams: 0 0 END with 0.196; a wide beam: 0 END with 0.2."""
    given = beam.next_log_probs, beam.NARROW, beam.LENGTH, beam.END
    found = [beam._greedy(*given), beam._right(*given), max(CONTRACTS["beam_wide"].target)]
    wide = CONTRACTS["beam_wide"].target
    found[2] = max(wide, key=wide.__getitem__)
    assert found == [(0, 1, 0), (0, 0, 2), (0, 2)]
    probs = [math.exp(beam.log_prob(text)) for text in found]
    assert probs == pytest.approx([0.192, 0.196, 0.2], abs=1e-12)
    assert math.fsum(math.exp(p) for p in wide.values()) == pytest.approx(1.0, abs=1e-12)
    assert judge(CONTRACTS["beam"], beam._greedy).says == "breaks its promise"
    assert judge(CONTRACTS["beam_wide"], beam._stops_early).says == "breaks its promise"


def laws_of(row):
    """log p(x_t | row); anything after the end token, where a search asks all the same."""
    if beam.END in row:
        return torch.full((beam.VOCAB,), -math.log(beam.VOCAB), dtype=torch.float64)
    return beam.next_log_probs(tuple(row))


@pytest.mark.parametrize("name", ["beam", "beam_wide"])
def test_our_beam_search_keeps_the_contracts(name):
    """Held to the contracts from outside, as a stranger's is."""
    from triptych.core.decoders import RecomputingDecoder
    from triptych.inference.beam import beam_search

    class Model:
        vocab_size, length = beam.VOCAB, beam.LENGTH

        def next_token_log_probs(self, prefix):
            return torch.stack([laws_of(row) for row in prefix.tolist()])

    def search(next_log_probs, beams, length, end):
        decoder = RecomputingDecoder(Model(), 1)
        found = beam_search(decoder, beams=beams, length=length, end_token=end)
        text = found.tokens[0, 0, : found.lengths[0, 0]].tolist()
        return (*text, end) if found.ended[0, 0] else tuple(text)

    verdict = judge(CONTRACTS[name], search)
    assert (verdict.says, verdict.counterexample) == ("keeps its promise", "")


def test_beams_of_transformers_find_the_likeliest_text():
    """generate(num_beams=...) as released; the table is its model, and the beam is wide."""
    transformers = pytest.importorskip("transformers")
    from transformers.modeling_outputs import CausalLMOutputWithPast

    class Model(transformers.PreTrainedModel, transformers.GenerationMixin):
        config_class = transformers.PretrainedConfig

        def __init__(self):
            sizes = {"num_hidden_layers": 1, "num_attention_heads": 1, "hidden_size": 1}
            super().__init__(transformers.PretrainedConfig(vocab_size=4, **sizes))
            self.place = torch.nn.Parameter(torch.zeros(1))

        def forward(self, input_ids, **_):
            laws = torch.stack([laws_of([x for x in row if x < 3]) for row in input_ids.tolist()])
            logits = torch.cat([laws.float(), torch.full((len(laws), 1), -1e4)], -1)
            return CausalLMOutputWithPast(logits=logits[:, None])

        def prepare_inputs_for_generation(self, input_ids, **_):
            return {"input_ids": input_ids}

    model = Model()

    def search(next_log_probs, beams, length, end):
        found = model.generate(
            torch.tensor([[3]]),
            num_beams=beams,
            max_new_tokens=length,
            eos_token_id=end,
            pad_token_id=3,
            do_sample=False,
            use_cache=False,
            length_penalty=0.0,
            early_stopping="never",
        )
        return tuple(x for x in found[0, 1:].tolist() if x != 3)

    verdict = judge(CONTRACTS["beam_wide"], search)
    assert (verdict.says, verdict.counterexample) == ("keeps its promise", "")


def test_a_choice_that_is_drawn_is_not_the_best():
    """The best half of the time: one half away, with the line of the draw."""
    contract = CONTRACTS["mbr"]

    def either(candidates, samples, utility):
        best = contract.right(candidates, samples, utility)
        return best if torch.rand(()) < 0.5 else candidates[0]

    verdict = judge(contract, either)
    assert (verdict.says, verdict.distance) == ("breaks its promise", 0.5)
    assert "test_contracts.py" in verdict.counterexample
    assert verdict.facts["behind the best"] == pytest.approx((9 / 14 - 4 / 7) / 2)
    outside = judge(contract, lambda candidates, samples, utility: (7,))
    assert outside.distance == 1
    assert "none of those" in outside.counterexample


def test_remasking_by_hand():
    """One fair coin, alpha = sigma = 1/2: shown and hidden change places with 1/2."""

    def coin(tokens, position):
        return torch.tensor([0.5, 0.5])

    shown = law_of(lambda: tuple(remasking._right((0,), coin, 0.5, 0.5, 0.5)))
    assert shown.probs == {(0,): 0.5, (None,): 0.5}
    hidden = law_of(lambda: tuple(remasking._right((None,), coin, 0.5, 0.5, 0.5)))
    assert hidden.probs == {(None,): 0.5, (0,): 0.25, (1,): 0.25}
    assert remasking.noised(0.5)[None, None] == 0.25


@pytest.mark.parametrize("name", ["remasking", "remasking_step"])
def test_ways_to_remask_that_break_the_promise(name):
    """Tokens that are drawn apart, a token that is drawn given itself, and the other's mistake."""

    def apart(state, law, alpha, later, sigma):
        shows = (later - (1 - sigma) * alpha) / (1 - alpha)
        drawn = [
            int(torch.multinomial(law(state, k), 1)) if token is None else token
            for k, token in enumerate(state)
        ]
        stays = [bool(torch.rand(()) < (shows if token is None else 1 - sigma)) for token in state]
        return [token if kept else None for token, kept in zip(drawn, stays, strict=True)]

    def forgets(state, law, alpha, later, sigma):
        """Hides first, and then shows what it hid, too."""
        hidden = tuple(remasking._step(state, law, 0.0, [sigma] * len(state)))
        return remasking._step(hidden, law, later, [0.0] * len(state))

    contract = CONTRACTS[name]
    wrong = [apart, forgets, remasking._hides_the_unlikely, remasking._as_without]
    for step in wrong:
        assert judge(contract, step).says == "breaks its promise", step.__name__
