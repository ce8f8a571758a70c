"""Antibodies and reactions: the published models answer as their packages say."""

import os

import pytest
import torch

from triptych.core.validation import UserError
from triptych.models.pretrained.fetching import cache_folder
from triptych.models.pretrained.small_masked import (
    AMINO_ACIDS,
    amino_acids,
    load_rxnmapper,
    load_sapiens,
)

SAPIENS, RXNMAPPER = cache_folder() / "sapiens", cache_folder() / "rxnmapper"
CHAIN = "**QLV*SGVEVKKPGASVKVSCKASGYTFTNYYMYWVRQAPGQGLEWMGGINPSNGGTNFNEKFKNRVTLTTDSSTT"
CHAIN += "TAYMELKSLQFDDTAVYYCARRDYRFDMGFDYWGQGTTVTVSS"


def fetched(folder):
    name = os.path.basename(folder)
    return pytest.mark.skipif(
        not folder.is_dir(), reason=f"`triptych fetch {name}` has not been run on this machine"
    )


def test_amino_acids():
    assert amino_acids("AC*") == ([0, 1, 0], [False, False, True])
    with pytest.raises(UserError):
        amino_acids("AB")


def test_what_is_no_model(tmp_path):
    with pytest.raises(UserError):
        load_sapiens(tmp_path)
    with pytest.raises(UserError):
        load_sapiens(tmp_path, "middle")
    with pytest.raises(UserError):
        load_rxnmapper(tmp_path)
    (tmp_path / "checkpoint_vh.pt").write_bytes(b"no weights")
    with pytest.raises(UserError):
        load_sapiens(tmp_path)


@fetched(SAPIENS)
def test_sapiens_answers_as_its_page_says():
    """The scores that the package's page prints for its example, and the filling."""
    lm = load_sapiens(SAPIENS)
    tokens, hidden = amino_acids(CHAIN)
    logits = lm.masked_log_probs([tokens], [hidden])[0]
    assert "".join(AMINO_ACIDS[int(logits[i].argmax())] for i in (0, 1, 5)) == "QVQ"
    printed = torch.tensor([0.003272, 0.004147, 0.004011, 0.004590], dtype=torch.float64)
    ratio = logits[0, :4].exp() / printed  # the page's scores are of all 25 tokens
    assert float(ratio.max() / ratio.min()) == pytest.approx(1, abs=1e-3)
    assert float(ratio.mean()) == pytest.approx(1, abs=0.03)


@fetched(RXNMAPPER)
def test_rxnmapper_knows_most_of_a_reaction():
    lm, tokens = load_rxnmapper(RXNMAPPER)
    assert lm.vocab_size == len(tokens) == 591
    words = ["C", "C", "(", "=", "O", ")", "O", ".", "O", "C", "C", ">>"]
    words += ["C", "C", "(", "=", "O", ")", "O", "C", "C"]
    ids = torch.tensor([[tokens.index(word) for word in words]] * len(words))
    each = torch.eye(len(words), dtype=torch.bool)
    said = lm.masked_log_probs(ids, each)[torch.arange(len(words)), torch.arange(len(words))]
    right = (said.argmax(-1) == ids[0]).sum()
    assert int(right) >= 12
