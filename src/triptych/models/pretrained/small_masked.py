"""Two small masked LMs of other people whose blocks can be listed: antibodies and reactions.

    sapiens      RoBERTa of antibody chains, 20 amino acids [Prihoda et al., 2022]
    rxnmapper    ALBERT of chemical reactions, 591 tokens [Schwaller et al., 2021]

`triptych fetch` gets their files. Weights are read with torch's weights_only, which runs no code of
a file. Both become a `PretrainedMaskedLM`, so everything here can be asked of them.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from triptych.core.validation import UserError
from triptych.models.pretrained.masked import PretrainedMaskedLM

AMINO_ACIDS = "ACDEFGHIKLMNPQRSTVWY"
_START, _END, _FIRST, _MASK = 0, 2, 4, 24  # of fairseq's dictionary
_FILES = {"heavy": "checkpoint_vh.pt", "light": "checkpoint_vl.pt"}


def load_sapiens(folder: Path | str, chain: str = "heavy") -> PretrainedMaskedLM:
    """The model of heavy or of light chains; word w is the amino acid AMINO_ACIDS[w]."""
    from transformers import RobertaConfig, RobertaForMaskedLM

    if chain not in _FILES:
        raise UserError(f"chain is {chain!r}; it must be heavy or light", parameter="chain")
    found = _weights(Path(folder) / _FILES[chain])
    weights = {name.removeprefix("decoder."): value for name, value in found["model"].items()}
    config = RobertaConfig(
        vocab_size=25,
        hidden_size=128,
        num_hidden_layers=4,
        num_attention_heads=8,
        intermediate_size=256,
        max_position_embeddings=146,
        type_vocab_size=1,
        pad_token_id=1,
        layer_norm_eps=1e-5,
    )
    model = RobertaForMaskedLM(config)
    state = dict(_renamed(weights))
    state["roberta.embeddings.token_type_embeddings.weight"] = torch.zeros(1, 128)
    state["lm_head.decoder.weight"] = weights["lm_head.weight"]
    state["lm_head.decoder.bias"] = weights["lm_head.bias"]
    _load(model, state, folder)
    words = torch.arange(_FIRST, _FIRST + len(AMINO_ACIDS))
    return PretrainedMaskedLM(model, _MASK, words, (_START,), (_END,))


def amino_acids(text: str) -> tuple[list[int], list[bool]]:
    """A chain as words; `*` and X are hidden.

    Worked value: "AC*" is [0, 1, 0], hidden at the last.
    """
    wrong = sorted(set(text) - set(AMINO_ACIDS) - set("*X"))
    if wrong:
        raise UserError(
            f"{', '.join(wrong)} are no amino acids; a chain has letters of {AMINO_ACIDS}, and * "
            "where one is hidden",
            parameter="text",
        )
    hidden = [sign in "*X" for sign in text]
    places = zip(text, hidden, strict=True)
    return [0 if away else AMINO_ACIDS.index(sign) for sign, away in places], hidden


def load_rxnmapper(folder: Path | str) -> tuple[PretrainedMaskedLM, list[str]]:
    """The model of reactions, and its tokens by id."""
    from transformers import AlbertConfig, AlbertForMaskedLM

    folder = Path(folder)
    try:
        config = AlbertConfig(**json.loads((folder / "config.json").read_text("utf-8")))
        tokens = (folder / "vocab.txt").read_text("utf-8").split("\n")
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{folder} has no reaction model: {error}", parameter="folder") from error
    tokens = tokens[: config.vocab_size]
    model = AlbertForMaskedLM(config)
    state = _weights(folder / "pytorch_model.bin")
    _load(model, {k: v for k, v in state.items() if k in model.state_dict()}, folder)
    ids = {token: number for number, token in enumerate(tokens)}
    around = (ids["[CLS]"],), (ids["[SEP]"],)
    return PretrainedMaskedLM(model, ids["[MASK]"], None, *around), tokens


def _weights(path: Path) -> dict[str, Any]:
    with torch.serialization.safe_globals([argparse.Namespace]):
        try:
            return torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # torch has a class of its own for each kind of damage
            raise UserError(
                f"{path} cannot be read as weights ({str(error).splitlines()[0]}); "
                "`triptych fetch` gets it again",
                parameter="folder",
            ) from error


def _load(model: Any, state: dict[str, Tensor], folder: Path | str) -> None:
    try:
        missing = model.load_state_dict(state, strict=False).missing_keys
    except RuntimeError as error:
        raise UserError(
            f"the weights in {folder} are of another shape", parameter="folder"
        ) from error
    derived = ("position_ids", "lm_head.bias", "predictions.decoder", "predictions.bias")
    absent = [name for name in missing if not any(word in name for word in derived)]
    if absent:
        raise UserError(f"the weights in {folder} lack {', '.join(absent[:3])}", parameter="folder")


def _renamed(weights: dict[str, Tensor]) -> list[tuple[str, Tensor]]:
    """fairseq's names as those of transformers."""
    parts = (
        ("self_attn.q_proj", "attention.self.query"),
        ("self_attn.k_proj", "attention.self.key"),
        ("self_attn.v_proj", "attention.self.value"),
        ("self_attn.out_proj", "attention.output.dense"),
        ("self_attn_layer_norm", "attention.output.LayerNorm"),
        ("final_layer_norm", "output.LayerNorm"),
        ("fc1", "intermediate.dense"),
        ("fc2", "output.dense"),
    )
    found = []
    for name, value in weights.items():
        if name.startswith("sentence_encoder.layers."):
            name = name.replace("sentence_encoder.layers.", "roberta.encoder.layer.")
            for theirs, ours in parts:
                name = name.replace(f".{theirs}.", f".{ours}.")
        name = name.replace("sentence_encoder.embed_tokens", "roberta.embeddings.word_embeddings")
        place = "roberta.embeddings.position_embeddings"
        name = name.replace("sentence_encoder.embed_positions", place)
        name = name.replace("sentence_encoder.emb_layer_norm", "roberta.embeddings.LayerNorm")
        if name != "lm_head.weight":
            found.append((name, value))
    return found
