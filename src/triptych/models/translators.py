"""An encoder-decoder as what algorithms ask for: a decoder of growing targets, or a refiner.

`SourceDecoder` is a `Decoder` for beam search: it writes targets from left to right, with a cache.
`SourceRefiner` is a `Refiner` for iterative refinement: it reads whole hypotheses. Both hold their
sources encoded. `save_translator` and `load_translator` keep a network and its vocabulary in a
folder.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triptych.core.files import sum_of, write_json, write_tensors
from triptych.core.validation import UserError, as_device
from triptych.models.encoder_decoder import DecoderCache, Encoded, EncoderDecoder, PairShape
from triptych.models.vocabulary import Vocabulary

WEIGHTS, SHAPE, VOCABULARY = "weights.safetensors", "shape.json", "vocabulary.json"


class SourceDecoder:
    """Targets of a batch of sources, written from left to right, all rows equally long.

    passes    runs of the decoder so far, in this one, its origin and forks
    """

    def __init__(self, net: EncoderDecoder, encoded: Encoded, *, start_token: int) -> None:
        if not net.shape.causal:
            raise UserError("a parallel decoder does not write from left to right; use refinement")
        self.net, self.encoded = net, encoded
        self.vocab_size = net.shape.vocab_size
        batch, device = len(encoded.states), encoded.states.device
        self._source = torch.arange(batch, device=device)
        self._tokens = torch.full((batch, 1), start_token, dtype=torch.long, device=device)
        self._cache = DecoderCache()
        self._passes = [0]

    @property
    def passes(self) -> int:
        return self._passes[0]

    @property
    def lengths(self) -> Int[Tensor, " batch"]:
        written = self._tokens.shape[1] - 1
        return torch.full_like(self._source, written)

    @property
    def tokens(self) -> Int[Tensor, "batch t"]:
        return self._tokens[:, 1:]

    @torch.no_grad()
    def next_log_probs(self, rows: Int[Tensor, " rows"] | None = None) -> Float[Tensor, "_ vocab"]:
        """log p(· | the target so far), in the network's own precision; of all rows."""
        if rows is not None or self._cache.used >= self._tokens.shape[1]:
            raise UserError(
                "this decoder is asked once about each prefix, and about all rows", parameter="rows"
            )
        pending = self._tokens[:, self._cache.used :]
        logits = self.net.decode(pending, self.encoded, cache=self._cache)
        self._passes[0] += 1
        return logits[:, -1].float().log_softmax(-1)

    def append(
        self, tokens: Int[Tensor, " batch"], rows: Int[Tensor, " rows"] | None = None
    ) -> None:
        """One token at the end of every row."""
        if rows is not None or len(tokens) != len(self._tokens):
            raise UserError(
                f"one token is needed for each of {len(self._tokens)} rows", parameter="rows"
            )
        self._tokens = torch.cat([self._tokens, tokens[:, None].long()], 1)

    def rollback(self, counts: Int[Tensor, " batch"]) -> None:
        raise UserError("this decoder goes forward only")

    def fork(self, rows: Int[Tensor, " copies"]) -> "SourceDecoder":
        """A new decoder whose row i is a copy of row `rows[i]`."""
        copy = object.__new__(SourceDecoder)
        copy.__dict__.update(self.__dict__)
        copy._tokens = self._tokens[rows]
        copy._source = self._source[rows]
        if not torch.equal(copy._source, self._source):  # else the rows read the same sources
            copy.encoded = self.encoded.rows(rows)
        old = self._cache
        copy._cache = DecoderCache(old.used, [*old.keys], [*old.values], [*old.placed])
        copy._cache.keep_rows(rows)
        return copy


class SourceRefiner:
    """Hypotheses of a batch of sources, read and answered at once."""

    def __init__(self, net: EncoderDecoder, encoded: Encoded) -> None:
        if net.shape.causal:
            raise UserError("a causal decoder does not refine; use beam search")
        self.net, self.encoded = net, encoded

    @torch.no_grad()
    def log_probs(
        self, hypotheses: Int[Tensor, "batch length"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch length vocab"]:
        """log p_i(· | hypothesis, source), for all positions in one pass."""
        return self.net.decode(hypotheses, self.encoded, lengths).float().log_softmax(-1)


def most_tokens(shape: PairShape) -> int:
    """The most tokens of a sentence to train on and to translate.

    A causal decoder reads the start token before its target: one position is lost.
    """
    return shape.length - 1 if shape.causal else shape.length


class SavedTranslator(NamedTuple):
    """A network, its vocabulary, and what was said about it when it was saved."""

    net: EncoderDecoder
    vocabulary: Vocabulary
    about: dict[str, object]


def save_translator(
    folder: Path, net: EncoderDecoder, vocabulary: Vocabulary, **about: object
) -> None:
    """Weights as safetensors, the vocabulary, and last the shape with the sums of both as JSON."""
    weights = {name: p.detach().cpu().contiguous() for name, p in net.state_dict().items()}
    write_tensors(folder / WEIGHTS, weights)
    vocabulary.save(folder / VOCABULARY)
    sums = {name: sum_of(folder / name) for name in (WEIGHTS, VOCABULARY)}
    write_json(folder / SHAPE, {"shape": asdict(net.shape), "about": about, "sums": sums})


def load_translator(folder: Path, *, device: torch.device | str = "cpu") -> SavedTranslator:
    """What `save_translator` has written."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    device = as_device(device)
    missing = [name for name in (WEIGHTS, SHAPE, VOCABULARY) if not (folder / name).is_file()]
    if missing:
        raise UserError(
            f"{folder} holds no translator: {', '.join(missing)} is missing; "
            "`triptych teach` makes such a folder",
            parameter="folder",
        )
    try:
        record = json.loads((folder / SHAPE).read_text("utf-8"))
        shape = PairShape(**{k: v for k, v in record["shape"].items() if k != "_"})
        sums = dict(record.get("sums", {}))
        weights = load_file(folder / WEIGHTS, device="cpu")
        net = EncoderDecoder(shape, seed=0)
        net.load_state_dict({name: value.float() for name, value in weights.items()})
    except (ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"the translator in {folder} cannot be read: {reason}", parameter="folder"
        ) from error
    parts = [name for name in (WEIGHTS, VOCABULARY) if name in sums]
    other = [name for name in parts if sum_of(folder / name) != sums[name]]
    if other:
        raise UserError(
            f"the translator in {folder} is not whole: {' and '.join(other)} and {SHAPE} were "
            "written at different times, or are damaged; the same `triptych teach` makes it again",
            parameter="folder",
        )
    vocabulary = Vocabulary.load(folder / VOCABULARY)
    if vocabulary.size != shape.vocab_size:
        raise UserError(
            f"the vocabulary in {folder} has {vocabulary.size} pieces and the network "
            f"{shape.vocab_size}; they belong to different translators",
            parameter="folder",
        )
    return SavedTranslator(net.to(device).eval(), vocabulary, record.get("about", {}))
