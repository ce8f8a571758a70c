"""A diffusion language model with its tokens: what `guide` takes where a language model is.

    lm = CanvasLM(denoiser, vocabulary)
    guide(lm, ["{"], Grammar.from_json_schema(schema), max_new_tokens=60)

A prompt is shown, and `max_new_tokens` holes stand behind it. An algorithm of prefixes fills them
from left to right, one in each pass, so that every verifier and every engine of grammars works as
with an autoregressive model; `diffusion.guided` has those that write elsewhere too.
"""

from collections.abc import Callable, Sequence
from typing import Any

from triptych.core.protocols import Density
from triptych.core.validation import (
    Count,
    UserError,
    as_list,
    as_size,
    as_text,
    check_callable,
)
from triptych.diffusion.denoiser import ExactDenoiser, MaskedDenoiser, as_denoiser
from triptych.diffusion.guided.any_order import AnyOrder
from triptych.diffusion.guided.canvas_decoder import CanvasDecoder, canvas_decoder
from triptych.diffusion.guided.canvas_gibbs import CanvasGibbs
from triptych.diffusion.guided.canvas_verifier import Regular
from triptych.diffusion.guided.completion import Completion
from triptych.diffusion.guided.remasking import Remasking
from triptych.guidance.batches import algorithm_called
from triptych.guidance.languages import automaton_of
from triptych.inference.guided.algorithm import AnyAlgorithm
from triptych.verifiers.grammars.grammar import Grammar
from triptych.verifiers.grammars.vocabulary import Vocabulary

ALGORITHMS: dict[str, type[AnyAlgorithm]] = {
    kind.name: kind for kind in (AnyOrder, CanvasGibbs, Completion, Remasking)
}
"""Of canvases alone, by name; an algorithm of prefixes runs on canvases too."""


class CanvasLM:
    """A denoiser of masks and the text of its tokens.

    model        a denoiser, or what `as_denoiser` makes one of: a structure, a masked LM
    vocabulary   the bytes of the tokens and the end tokens; or a fast tokenizer
    length       positions at most; None: what the model says
    reads        positions that the model is always shown, with holes behind the text that nobody
                 fills: for a model that knows one length alone, as a structure does. None: as many
                 as a prompt and its new tokens have, unless the model is a structure
    encode       text to tokens, encode(text); None: the tokenizer's, or the longest token at each
                 place
    """

    bos_token = None

    def __init__(
        self,
        model: object,
        vocabulary: Any,
        *,
        length: Count | None = None,
        reads: Count | None = None,
        encode: Any = None,
    ) -> None:
        self.model = as_denoiser(model)
        self.vocabulary = Vocabulary.of(vocabulary)
        if len(self.vocabulary) != self.vocab_size:
            raise UserError(
                f"the vocabulary has {len(self.vocabulary)} tokens and the model "
                f"{self.vocab_size}; each token of the model needs its bytes, b'' where it writes "
                "nothing",
                parameter="vocabulary",
            )
        oracle: object = self.model
        if isinstance(oracle, MaskedDenoiser | ExactDenoiser):
            oracle = oracle.lm if isinstance(oracle, MaskedDenoiser) else oracle.table
        known = getattr(oracle, "length", None) if length is None else length
        if known is None:
            raise UserError(
                f"{type(oracle).__name__} does not say how many positions it reads; pass length",
                parameter="length",
            )
        self.length = as_size("length", known)
        if reads is None and isinstance(oracle, Density):
            reads = self.length
        self.reads = None if reads is None else as_size("reads", reads)
        if encode is not None:
            check_callable("encode", encode, "encode(text)")
        self._encode = encode or self.vocabulary.spelled
        if encode is None and vocabulary is not self.vocabulary:
            self._encode = _by_tokenizer(vocabulary)

    def __repr__(self) -> str:
        return f"CanvasLM({self.model!r}, {self.vocabulary}, length {self.length})"

    @property
    def vocab_size(self) -> int:
        return self.model.vocab_size

    @property
    def end_tokens(self) -> tuple[int, ...]:
        return tuple(self.vocabulary.ends)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of each text."""
        given = [as_text(f"texts[{b}]", t) for b, t in enumerate(as_list("texts", texts, "texts"))]
        return [[int(token) for token in self._encode(text)] for text in given]

    def text_of(self, row: Sequence[int]) -> str:
        """The text of one row of tokens, up to its first end token."""
        tokens = [int(token) for token in row]
        ends = set(self.end_tokens)
        stop = next((i for i, token in enumerate(tokens) if token in ends), len(tokens))
        return self.vocabulary.text(tokens[:stop]).decode("utf-8", "replace")

    def decoder(self, prompts: Sequence[Sequence[Count]], more: Count) -> CanvasDecoder:
        """Canvases that begin with these prompts of tokens, with `more` holes behind each."""
        return canvas_decoder(self.model, prompts, as_size("more", more), reads=self.reads)


def _by_tokenizer(tokenizer: Any) -> Callable[[str], list[int]]:
    return lambda text: tokenizer(text, add_special_tokens=False)["input_ids"]


def canvas_algorithm(
    algorithm: str | AnyAlgorithm | None, verifier: Any, *, greedy: bool
) -> AnyAlgorithm:
    """The algorithm on canvases; None follows the verifier.

    "completion", one position a round, for a regular language; for other verifiers that of
    autoregressive models, from left to right.
    """
    if algorithm is None and isinstance(verifier, Regular):
        return Completion(steps=None)
    if isinstance(algorithm, str) and (name := algorithm.replace("-", "_")) in ALGORITHMS:
        algorithm = ALGORITHMS[name]()
    return algorithm_called(algorithm, verifier, greedy=greedy)


def on_canvas_lm(lm: CanvasLM, verifier: Any, algorithm: str | AnyAlgorithm | None) -> Any:
    """A grammar as a verifier of this model's tokens.

    A regular language, where it is one, for algorithms of canvases and where none is named; for
    algorithms of prefixes an engine."""
    if not isinstance(verifier, Grammar):
        return verifier
    name = algorithm.replace("-", "_") if isinstance(algorithm, str) else algorithm
    if name == Completion.name or isinstance(algorithm, Completion):
        return Regular(automaton_of(verifier, lm.vocabulary))
    if algorithm is None or name in ALGORITHMS or isinstance(algorithm, tuple(ALGORITHMS.values())):
        try:
            return Regular(automaton_of(verifier, lm.vocabulary))
        except UserError:  # not regular, or too large: an engine reads it from left to right
            pass
    return verifier.on(lm.vocabulary)
