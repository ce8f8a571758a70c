"""Head tuning and soft-prompt tuning of a frozen masked model, on token sequences.

The model reads (u_1, …, u_k, ∅, x): k prompt vectors, a hidden position, the input. A linear head
reads its law G at the hidden position, an attention head its law at every position. k = 0 is head
tuning; with k > 0 the prompt and the head are trained together [wei, 3.1, 4.2, D].

The model is any `SoftMasked`: the exact embedding model of an HMM, whose vectors lie in [0, 1]; our
transformer; a pretrained network. Its weights never change.
"""

from dataclasses import replace
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from triptych.adaptation.attention import AttentionHead
from triptych.adaptation.linear import PAPER_RECIPE, LinearHead, Solver
from triptych.core.deprecation import renamed
from triptych.core.protocols import SoftMasked
from triptych.core.randomness import TorchRng
from triptych.core.validation import UserError, as_integers, as_seed, as_size, check_can
from triptych.models.language_models import MaskedLM, in_precision
from triptych.training.classifier import train_classifier
from triptych.training.step import Recipe

HeadKind = Literal["linear", "attention"]
ROWS_AT_ONCE = 512  # of a forward pass without gradients


class Tuning:
    """A classifier of sequences on a frozen masked model: fit, predict, score.

    prompt_length
        k; 0 for head tuning.
    head
        "linear" on G at the hidden position, or "attention" over all positions.
    solver
        For a linear head without a prompt: "newton" finds the optimum of the convex problem,
        "recipe" trains. Everything else is trained with `recipe`.

    Prompt vectors start uniform in [-½, ½]; where the model's vectors must lie in [0, 1], the
    sigmoid of such numbers.
    """

    @renamed(model="lm")
    def __init__(
        self,
        lm: SoftMasked,
        *,
        prompt_length: int = 0,
        head: HeadKind = "linear",
        solver: Solver = "recipe",
        recipe: Recipe = PAPER_RECIPE,
        seed: int = 0,
    ) -> None:
        check_can("lm", lm, "embed", "soft_masked_probs", "soft_range")
        prompt_length, seed = as_size("prompt_length", prompt_length, at_least=0), as_seed(seed)
        if head not in ("linear", "attention"):
            raise UserError(
                f"head is {head!r}; it must be 'linear' or 'attention'", parameter="head"
            )
        if solver == "newton" and (prompt_length or head == "attention"):
            raise UserError(
                "solver='newton' is for a linear head without a prompt: only that problem is convex"
            )
        self.model, self.prompt_length, self.head_kind = lm, prompt_length, head
        self.solver: Solver = solver
        self.recipe, self.seed = recipe, seed
        self.losses: list[float] = []
        self._raw: nn.Parameter | None = None
        self._head: LinearHead | AttentionHead | None = None
        self._readout: nn.Linear | None = None

    # ------------------------------------------------------------------ on tokens

    def fit(self, tokens: Int[Tensor, "batch t"], labels: Int[Tensor, " batch"]) -> "Tuning":
        """Train on inputs x, without the hidden position, which is added here."""
        return self.fit_vectors(self.embedded(tokens), self.symbols(tokens), labels)

    def predict(self, tokens: Int[Tensor, "batch t"]) -> Int[Tensor, " batch"]:
        return self.predict_vectors(self.embedded(tokens), self.symbols(tokens))

    def score(self, tokens: Int[Tensor, "batch t"], labels: Int[Tensor, " batch"]) -> float:
        """The share of right predictions."""
        return float((self.predict(tokens) == labels).double().mean())

    def features(self, tokens: Int[Tensor, "batch t"]) -> Float[Tensor, "batch vocab"]:
        """The law at the hidden position, which a linear head reads."""
        return self.features_of(self.embedded(tokens))

    def features_of(self, vectors: Float[Tensor, "batch t width"]) -> Float[Tensor, "batch vocab"]:
        """The same for vectors whose first position is the hidden one."""
        if self.head_kind != "linear":
            raise UserError("an attention head reads every position: ask the model itself")
        return self._probs_without_gradients(vectors)[:, 0]

    def embedded(self, tokens: Int[Tensor, "batch t"]) -> Float[Tensor, "batch t1 width"]:
        """The vectors of (∅, x)."""
        tokens = as_integers("tokens", tokens, dimensions=2)
        padded = torch.nn.functional.pad(tokens, (1, 0))
        hidden = torch.zeros_like(padded, dtype=torch.bool)
        hidden[:, 0] = True
        with torch.no_grad():
            return self.model.embed(padded, hidden)

    def symbols(self, tokens: Int[Tensor, "batch t"]) -> Int[Tensor, "batch t1"]:
        """The tokens of (∅, x) for an attention head; `vocab_size` stands for none."""
        return torch.nn.functional.pad(tokens, (1, 0), value=self.model.vocab_size)

    # ------------------------------------------------------------------ on vectors

    def fit_vectors(
        self,
        vectors: Float[Tensor, "batch t width"],
        symbols: Int[Tensor, "batch t"],
        labels: Int[Tensor, " batch"],
    ) -> "Tuning":
        """Train on vectors whose first position is the hidden one."""
        device, dtype, width = vectors.device, vectors.dtype, vectors.shape[-1]
        generator = torch.Generator().manual_seed(self.seed)
        raw = torch.rand(self.prompt_length, width, generator=generator, dtype=torch.float64) - 0.5
        self._raw = nn.Parameter(raw.to(device, dtype))
        classes, vocab = int(labels.max()) + 1, self.model.vocab_size
        rng = TorchRng(self.seed, device)
        if self.prompt_length == 0:
            probs = self._probs_without_gradients(vectors)
            if self.head_kind == "linear":
                self._head = LinearHead(self.solver, recipe=self.recipe, seed=self.seed)
                self._head.fit(probs[:, 0], labels)
                return self
        else:
            probs = None
        if self.head_kind == "attention":
            length = self.prompt_length + vectors.shape[1]
            head = AttentionHead.random(
                vocab, length, classes=classes, seed=self.seed, device=device, dtype=dtype
            )
            self._head, trained = head, list(head.parameters())
        else:
            self._readout = nn.Linear(vocab, classes, device="cpu", dtype=torch.float64)
            for parameter in self._readout.parameters():
                nn.init.uniform_(parameter, -(vocab**-0.5), vocab**-0.5, generator=generator)
            self._readout = self._readout.to(device, dtype)
            trained = list(self._readout.parameters())

        copied, recipe = self._copy_for_training(device), self.recipe
        if copied is not None:
            vectors = vectors.to(copied.net.output.weight.dtype)
            recipe = replace(recipe, autocast="none")

        def scores(rows: Tensor) -> Tensor:
            law = probs[rows] if probs is not None else self._probs(vectors[rows], copied)
            return self._decision(law, symbols[rows])

        parameters = trained + ([self._raw] if self.prompt_length else [])
        self.losses = train_classifier(scores, labels, parameters, recipe, rng)
        return self

    def _copy_for_training(self, device: torch.device) -> MaskedLM | None:
        """The network in bfloat16, where the recipe has that and a prompt is tuned on a GPU.

        Prompt and head stay in full precision, and so does the network when it is asked afterwards.
        """
        half = self.recipe.autocast == "bfloat16" and device.type == "cuda"
        if half and self.prompt_length and isinstance(self.model, MaskedLM):
            return in_precision(self.model, torch.bfloat16)
        return None

    def predict_vectors(
        self, vectors: Float[Tensor, "batch t width"], symbols: Int[Tensor, "batch t"]
    ) -> Int[Tensor, " batch"]:
        if self._raw is None:
            raise RuntimeError("this classifier has not been fitted: call fit first")
        blocks = []
        with torch.no_grad():
            for law, shown in zip(
                self._probs_without_gradients(vectors).split(ROWS_AT_ONCE),
                symbols.split(ROWS_AT_ONCE),
                strict=True,
            ):
                blocks.append(self._decision(law, shown).argmax(-1))
        return torch.cat(blocks)

    @property
    def prompt(self) -> Float[Tensor, "k width"]:
        """The prompt vectors."""
        if self._raw is None:
            raise RuntimeError("this classifier has not been fitted: call fit first")
        low, high = self.model.soft_range
        if (low, high) == (-torch.inf, torch.inf):
            return self._raw
        return low + (high - low) * self._raw.sigmoid()

    # ------------------------------------------------------------------ inside

    def _probs(
        self, vectors: Float[Tensor, "batch t width"], model: SoftMasked | None = None
    ) -> Float[Tensor, "batch kt vocab"]:
        """G over the prompt and the input; of the hidden position alone for a linear head."""
        model = self.model if model is None else model
        if self.prompt_length:
            prompt = self.prompt.to(vectors.dtype).expand(len(vectors), -1, -1)
            vectors = torch.cat([prompt, vectors], dim=1)
        if self.head_kind == "linear":
            return model.soft_masked_probs(vectors, at=self.prompt_length)
        return model.soft_masked_probs(vectors)

    def _probs_without_gradients(self, vectors: Tensor) -> Tensor:
        with torch.no_grad():
            return torch.cat([self._probs(block) for block in vectors.split(ROWS_AT_ONCE)])

    def _decision(self, law: Tensor, symbols: Tensor) -> Tensor:
        if isinstance(self._head, LinearHead):
            return self._head.decision(law[:, 0])
        if isinstance(self._head, AttentionHead):
            shown = torch.nn.functional.pad(
                symbols, (self.prompt_length, 0), value=self.model.vocab_size
            )
            return self._head(law, shown)
        assert self._readout is not None
        return self._readout(law[:, 0])
