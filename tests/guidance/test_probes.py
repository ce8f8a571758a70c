"""Probes from texts: states against the decoder's, labels by hand, a task that can be learnt."""

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from tests.support.tiny_text_model import EOS, tiny_lm

from triptych.core.validation import UserError
from triptych.guidance.guide import guide
from triptych.guidance.probes import TextProbe, _labels, _read, train_probe
from triptych.inference.guided.best_of_n import BestOfN
from triptych.models.pretrained.causal_states import states_of_rows

LM = tiny_lm()
GOOD = [("a", one + two + three) for one in "ab01" for two in "ab01" for three in "ab"]
BAD = [("a", one + two + three) for one in "()[]" for two in "()[]" for three in "()"]


@pytest.fixture(scope="module")
def probe():
    """Good texts are of letters, bad ones of brackets."""
    return train_probe(LM, GOOD, BAD, layer=1, depth=2)


@pytest.mark.parametrize("layer", [0, 1, -1])
def test_states_are_those_of_the_decoder(layer):
    rows = LM.encode(["ab01", "b", "(("])
    states = states_of_rows(LM, rows, layer)
    for row, seen in zip(rows, states, strict=True):
        decoder = LM.decoder([row[:1]], layer=layer)
        for token, state in enumerate(seen):
            torch.testing.assert_close(decoder.hidden_state()[0], state, rtol=1e-4, atol=1e-5)
            if token + 1 < len(row):
                decoder.append([row[token + 1]])


def test_labels_by_hand():
    """The end token is the last state; the error is in the third character."""
    good = _read(LM, ("a", "b01"), name="good", chat=False, correct=True)
    assert good.tokens[-1] == EOS
    assert _labels(good).tolist() == [True] * 4
    whole = _read(LM, "b01", name="bad", chat=False, correct=False)
    assert _labels(whole).tolist() == [False] * 4
    placed = _read(LM, ("a", "b01", 2), name="bad", chat=False, correct=False)
    assert _labels(placed).tolist() == [True, True, False, False]
    assert placed.start == 1
    assert _read(LM, ("a", "b"), name="bad", chat=True, correct=False).start == 2


def test_it_learns_what_can_be_learnt(probe):
    scored = probe.held_out
    assert (scored.texts, scored.states) == (12, 48)
    assert scored.majority == 0.5
    assert scored.accuracy > 0.9
    assert scored.at_end > 0.8
    assert repr(probe).startswith("TextProbe(layer 1 of LlamaForCausalLM, ")
    assert "majority" in probe._repr_html_()


def test_guide_takes_it_with_its_layer(probe):
    """Best of n keeps the text that the probe values most, and the values are the probe's own."""
    found = guide(LM, ["a"], probe, BestOfN(n=6), max_new_tokens=2, rng=0)
    values = []
    for tokens in found.results[0].info.candidates.tokens[0].tolist():
        row = [token for token in tokens if token >= 0]
        state = states_of_rows(LM, [row], 1)[0][-1:]
        values.append(float(probe.probe.log_prob_correct(state).exp()))
    assert [one.value for one in found.candidates[0]] == pytest.approx(values, rel=1e-3)


def test_another_model_is_refused(probe):
    other = TextProbe(probe.probe, "other", "GPT2LMHeadModel", probe.held_out)
    with pytest.raises(UserError, match="trained on other, a GPT2LMHeadModel with states of 16"):
        guide(LM, ["a"], other, max_new_tokens=2)


def test_saved_and_loaded(probe, tmp_path):
    file = tmp_path / "probe.safetensors"
    probe.save(file)
    loaded = TextProbe.load(file)
    assert (loaded.layer, loaded.model, loaded.kind) == (1, probe.model, "LlamaForCausalLM")
    assert loaded.held_out == probe.held_out
    states = torch.randn(5, 16, generator=torch.Generator().manual_seed(0))
    said = probe.probe.log_prob_correct(states)
    assert loaded.probe.log_prob_correct(states).tolist() == said.tolist()
    with safe_open(str(file), framework="pt") as opened:
        assert opened.metadata()["layer"] == "1"
        assert opened.metadata()["model"] == "LlamaForCausalLM"


def test_bad_input_gets_a_sentence(probe, tmp_path, unchecked_shapes):
    save_file({"x": torch.zeros(1)}, tmp_path / "other.safetensors")
    (tmp_path / "text").write_text("no tensors")
    for given, sentence in [
        (lambda: train_probe(3, GOOD, BAD), "lm is 3"),
        (lambda: train_probe(LM, [], BAD), "good is empty"),
        (lambda: train_probe(LM, "good", BAD), "good is 'good'"),
        (lambda: train_probe(LM, GOOD, [("a", "b", "c", "d")]), "bad holds"),
        (lambda: train_probe(LM, [("a", "b", 0)], BAD), "good holds"),
        (lambda: train_probe(LM, [3], BAD), "good holds 3"),
        (lambda: train_probe(LM, [("a", 3)], BAD), "a completion of good is 3"),
        (lambda: train_probe(LM, [""], BAD), "empty completion"),
        (lambda: train_probe(LM, ["a" * 60], BAD), "61 tokens; this model reads at most 39"),
        (lambda: train_probe(LM, GOOD, [("a", "b", 1)]), "the place of an error is 1"),
        (lambda: train_probe(LM, GOOD, BAD, layer=3), "layer is 3"),
        (lambda: train_probe(LM, GOOD, BAD[:1]), "1 wrong example and 1 would be held out"),
        (lambda: train_probe(LM, GOOD, BAD, share=1.5), "share is 1.5"),
        (lambda: TextProbe.load(tmp_path / "none"), "there is no file"),
        (lambda: TextProbe.load(tmp_path / "text"), "holds no probe"),
        (lambda: TextProbe.load(tmp_path / "other.safetensors"), "holds no probe"),
        (lambda: TextProbe.load(3), "file is 3"),
        (lambda: probe.save(tmp_path / "text" / "folder"), "cannot be written"),
    ]:
        with pytest.raises(UserError, match=sentence):
            given()
