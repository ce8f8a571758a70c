"""What is true of the networks, recomputed from weights in a file and from the theory."""

import json
from collections import Counter

import pytest
import torch
from tests.support.refusals import refused

from triptych.core.validation import UserError
from triptych.lab.traps.explicit import LANGUAGES, Design, Maker, head_scores, pattern_pair
from triptych.lab.traps.making import make_trap
from triptych.lab.traps.pairs import KINDS, RECORD, WEIGHTS, Examiner, Trap, read_trap, write_trap
from triptych.lab.traps.scoring import ASKED
from triptych.lab.traps.trained import head_pairs
from triptych.lab.traps.truth import TESTED, Measured, Truth, apart, truth_of
from triptych.models.constructions.balanced import log_ratios
from triptych.structures.brackets.dyck import Dyck

pytestmark = pytest.mark.usefixtures("unchecked_shapes")


@pytest.fixture(scope="module")
def folder(small_trap, tmp_path_factory):
    place = tmp_path_factory.mktemp("trap")
    write_trap(small_trap, place)
    return place


def checked_again(trap):
    """Every truth and number of a trap, from its weights alone."""
    examiner = Examiner()
    for pair in trap.pairs:
        for member in pair.members:
            again = examiner.member(member.network, member.about)
            assert again.truth == member.truth
            assert again.measured.accuracy == member.measured.accuracy
            assert again.measured.without == member.measured.without
        assert examiner.pair(pair.kind, *pair.members).apart == pytest.approx(pair.apart, abs=1e-6)


def test_truth_is_recomputed_from_the_file(folder, small_trap):
    trap = read_trap(folder)
    assert [pair.kind for pair in trap.pairs] == [pair.kind for pair in small_trap.pairs]
    assert [m.truth for m in trap.members] == [m.truth for m in small_trap.members]
    checked_again(trap)


def test_what_the_kinds_promise(small_trap):
    """Same function or same attention, and truths that differ as the kind says."""
    count = Counter(pair.kind for pair in small_trap.pairs)
    assert set(count) == {kind for kind in KINDS if not kind.startswith("trained")}
    assert set(count.values()) == {2}
    for pair in small_trap.pairs:
        first, second = (member.truth for member in pair.members)
        exact = [member.measured.accuracy for member in pair.members]
        assert exact == ([1.0, 0.0] if pair.kind == "function" else [1.0, 1.0])
        assert (pair.apart > 10) if pair.kind == "far" else (pair.apart == 0)
        if pair.kind == "far":
            assert first.needs_pattern == second.needs_pattern
            assert first.is_balanced
            assert second.is_balanced
        if pair.kind in ("pattern", "function"):
            assert (first.needs_pattern, second.needs_pattern) == (True, False)
        if pair.kind in ("pattern", "head"):
            assert {first.important_head, second.important_head} == {0, 1}
        if pair.kind == "balance":
            assert (first.is_balanced, second.is_balanced) == (True, False)


def test_same_attention_is_the_same_to_the_last_bit(small_trap):
    for pair in small_trap.pairs:
        if pair.kind != "far":
            first, second = (member.network for member in pair.members)
            tokens = Examiner().sentences(first).tokens[:5]
            assert torch.equal(first.patterns(tokens), second.patterns(tokens))


def test_networks_are_exact_where_they_should_be(small_trap):
    for pair in small_trap.pairs:
        for member in pair.members:
            if not member.about.endswith("ignored"):
                network = member.network
                law = Dyck.prefixes(network.types, network.max_depth, 28, q=0.5)
                tokens = law.sample(5, rng=7)
                wanted = law.every_next_token_log_probs(tokens).exp()
                assert (network.predictions(tokens)[:, :-1] - wanted).abs().max() < 1e-9


@pytest.mark.parametrize("look", ["stack", "outermost", "random", "start", "one_type", "even"])
def test_scores_are_balanced_with_the_ratio_asked_for(look):
    for types, depth in LANGUAGES:
        generator = torch.Generator().manual_seed(1)
        scores = head_scores(types, depth, Design(look, 1.25), generator)
        ratios = log_ratios(scores, types, depth)
        assert torch.allclose(ratios, torch.full_like(ratios, 1.25))


def test_a_stack_by_hand():
    """After "[(" and after "[()": the innermost open bracket is of level 2, and of level 1."""
    scores = head_scores(2, 3, Design("stack", 0.0, 50.0), torch.Generator().manual_seed(0))
    after_opening, after_closing = 2 * 3 + 1, 3 * 3 + 1  # "(" and ")" of level 2
    assert scores[:, after_opening].topk(4).indices.sort().values.tolist() == [1, 4, 7, 10]
    assert scores[:, after_closing].topk(4).indices.sort().values.tolist() == [0, 3, 6, 9]


def test_truth_by_hand():
    found = Measured(1.0, 0.5, 0.4, (1.0, 0.2), (0.1, 0.1), 1e-16)
    assert truth_of(found) == Truth(True, 1, True)
    assert truth_of(found._replace(uniform=1.0, violation=0.2)) == Truth(False, 1, False)
    unclear = found._replace(uniform=0.98, without=(0.5, 0.52), violation=None)
    assert truth_of(unclear) == Truth(None, None, None)


def test_distance_by_hand_and_heads_in_any_order():
    first = torch.tensor([[[[1.0, 0], [1, 0]], [[1, 0], [0.5, 0.5]]]])
    assert apart(first, first.flip(1)) == 0.0
    second = torch.tensor([[[[1.0, 0], [0, 1]], [[1, 0], [0.5, 0.5]]]])
    assert apart(first, second) == 0.5  # in the other order; in this one it is 2 and 0, 1 in all


def test_the_same_seed_gives_the_same_networks():
    def weights(seed):
        maker = Maker(2, 3, torch.Generator().manual_seed(seed))
        return pattern_pair(maker, 0, Examiner())[0].network.weights()

    first, again, other = weights(0), weights(0), weights(1)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["heads.0.key"], other["heads.0.key"])


@pytest.mark.slow
def test_pairs_of_trained_heads(monkeypatch):
    """Hardly trained, so that accuracy is not asked for: same patterns, another head."""
    monkeypatch.setattr("triptych.lab.traps.trained.ACCURATE", 0.0)
    monkeypatch.setattr("triptych.lab.traps.trained.STRINGS", 20)
    (pair,) = head_pairs(1, 0, 2, Examiner())
    assert pair.apart == 0.0
    first, second = pair.members
    assert first.measured.without[0] == first.measured.accuracy
    assert second.measured.without[1] == second.measured.accuracy
    assert first.measured.violation is None


def test_a_folder_that_is_no_trap_gets_a_sentence(folder, tmp_path):
    with refused("folder"):
        read_trap(tmp_path)
    (tmp_path / WEIGHTS).write_bytes(b"no weights")  # as those of another trap
    (tmp_path / RECORD).write_text((folder / RECORD).read_text())
    with refused("folder"):
        read_trap(tmp_path)
    (tmp_path / RECORD).write_text("[]")
    with refused("folder"):
        read_trap(tmp_path)
    (tmp_path / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes())
    record = json.loads((folder / RECORD).read_text())
    (tmp_path / RECORD).write_text(json.dumps(record | {"format": 99}))
    with refused("folder"):
        read_trap(tmp_path)
    (tmp_path / RECORD).write_text("{")
    with refused("folder"):
        read_trap(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        write_trap(Trap(0, []), tmp_path / "file")


@pytest.mark.slow
def test_the_whole_trap_keeps_its_promises(tmp_path, monkeypatch):
    """At least 200 networks; every question has a truth where it is asked."""
    monkeypatch.setattr("triptych.lab.traps.pairs.TESTED", TESTED)
    write_trap(make_trap(), tmp_path)
    trap = read_trap(tmp_path)
    assert len(trap.members) >= 200
    assert (tmp_path / WEIGHTS).stat().st_size < 8e6
    checked_again(trap)
    for question, kinds in ASKED.items():
        for kind in kinds:
            pairs = [pair for pair in trap.pairs if pair.kind == kind]
            known = [getattr(m.truth, question) is not None for p in pairs for m in p.members]
            least = 0.3 if kind == "trained_far" else 0.5
            assert sum(known) >= least * len(known), (question, kind)
