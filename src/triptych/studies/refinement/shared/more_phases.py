"""Pipelines with more phases: other rules of decoding, and the loss on sentences kept aside."""

import functools
from collections.abc import Callable

import torch

from triptych.core.randomness import TorchRng
from triptych.models.encoder_decoder import EncoderDecoder, PairShape
from triptych.studies.refinement.shared.pipeline import STEPS, Found, Pipeline
from triptych.studies.refinement.shared.repeats import Rule, translated_by
from triptych.studies.refinement.shared.translating import Tokens, in_batches
from triptych.training.corpus import PairBatch, PairCorpus, padded
from triptych.training.step import Recipe
from triptych.training.translation import (
    Corruption,
    TranslationHistory,
    causal_losses,
    fit_translator,
    parallel_losses,
)

COUNTED: tuple[Rule, ...] = ("program", "before")
"""Rules whose repeated words are counted, on all sets."""
COMPARED: tuple[Rule, ...] = ("least_sure", "random", "keep")
"""Rules whose BLEU is compared, on the set kept aside."""


class RulesPipeline(Pipeline):
    """One that ends with translations by other rules."""

    def phases_of_rules(self) -> list[tuple[str, Callable[[], Found]]]:
        """Trainings and translations, without measures of attention and ablations."""
        wanted = ("teacher", "distil", "student", "padir")
        found = [each for each in self.phases() if each[0] in wanted]
        return [*found, ("rules", self.rules)]

    def rules(self) -> Found:
        """The trained parallel decoder with every other rule."""
        aside = self._sets(("test_2017_flickr",))
        outputs = {
            f"{rule} T={steps}": {name: self._by_rule(rule, steps, name) for name in sets}
            for rules, sets, counts in (
                (COUNTED, self._sets(), STEPS),
                (COMPARED, aside, STEPS[2:]),
            )
            for rule in rules
            for steps in counts
        }
        return {"outputs": outputs}

    def _by_rule(self, rule: Rule, steps: int, name: str) -> Found:
        rng = self._rng(f"start {name}")  # the first hypotheses of the published rule
        found = in_batches(
            self.questions(name),
            self.plan.batch,
            lambda some: translated_by(
                self.nets["padir"], some, rule, rng, steps=steps, lengths=self.plan.lengths
            ),
        )
        return dict(vars(found))


class WatchedPipeline(Pipeline):
    """One that measures the loss on the validation pairs ten times in every training.

    Loss: -log p of the target's tokens, their mean, without smoothing. A parallel decoder reads
    the corrupted hypotheses of training, the same ones at every measure.
    """

    def phases_of_pairs(self) -> list[tuple[str, Callable[[], Found]]]:
        """Trainings and translations."""
        wanted = ("teacher", "distil", "student", "padir")
        return [
            (name, functools.partial(self._with_losses, run))
            for name, run in self.phases()
            if name in wanted
        ]

    def _with_losses(self, run: Callable[[], Found]) -> Found:
        found = run()
        if "training" not in found:
            return found
        return found | {"validation": [round(loss, 4) for loss in self.watched]}

    def _train(
        self,
        name: str,
        sources: Tokens,
        targets: Tokens,
        budget: tuple[int, float],
        *,
        corruption: Corruption | None = None,
        positional: bool = True,
        refit_lengths: bool = True,
        report: Callable[[int, float], None] | None = None,
    ) -> tuple[EncoderDecoder, TranslationHistory]:
        """As in `Pipeline`, with a look at the validation pairs at every tenth of the steps."""
        plan, watched = self.plan, list[float]()
        self.watched = watched
        shape = PairShape(
            self.pairs.vocab_size,
            plan.length,
            width=plan.width,
            layers=plan.layers,
            heads=plan.heads,
            feedforward=plan.feedforward,
            causal=corruption is None,
            positional_attention=positional and corruption is not None,
            dropout=plan.dropout,
        )
        net = EncoderDecoder(shape, seed=self._rng(name).seed, device=self.device)
        net.use_kernels(self.kernels)
        widths = [*(w for w in plan.widths if w < plan.length - 1), plan.length - 1]
        corpus = PairCorpus(sources, targets, tokens=plan.tokens, widths=widths, device=self.device)
        recipe = Recipe(
            budget[0],
            learning_rate=plan.learning_rate,
            betas=(0.9, 0.98),
            weight_decay=0.01,
            warmup=min(plan.warmup, max(1, budget[0] // 10)),
            decay="cosine",
            clip=1.0,
            ema=0.998 if budget[0] >= 1000 else 0.9,
            autocast="bfloat16" if self.device.type == "cuda" else "none",
            compile=self.compiled,
        )

        def look(step: int, loss: float) -> None:
            if step >= (len(watched) + 1) * budget[0] / 10 and len(watched) < 9:
                watched.append(self.validation(net, corruption))
            if report is not None:
                report(step, loss)

        history = fit_translator(
            net,
            corpus,
            recipe,
            self._rng(f"train {name}"),
            corruption=corruption,
            refit_lengths=refit_lengths,
            seconds=budget[1],
            recorded=self.recorded,
            report=look,
        )
        watched.append(self.validation(net, corruption))
        self.say(
            f"{name}: {history.steps} steps in {history.seconds:.0f} s, "
            f"recorded {history.recorded} ({history.why_not}), loss {history.losses[-1]:.3f}, "
            f"validation {[round(loss, 3) for loss in watched]}"
        )
        self.nets[name] = net
        return net, history

    @torch.no_grad()
    def validation(self, net: EncoderDecoder, corruption: Corruption | None) -> float:
        """-log p of a token of the validation targets; of both stages of a parallel decoder."""
        most = self.plan.length - 1
        pairs = zip(self._side("val", self.source), self._side("val", self.target), strict=True)
        kept = [(a, b) for a, b in pairs if 0 < len(a) <= most and 0 < len(b) <= most]
        rng, training = TorchRng(0, self.device), net.training
        total, words = 0.0, 0
        net.eval()
        net.use_kernels("torch")  # what is trained on a GPU is a copy, which keeps its own
        for first in range(0, len(kept), self.plan.batch):
            some = kept[first : first + self.plan.batch]
            batch = PairBatch(
                *(
                    part.long()
                    for side in zip(*some, strict=True)
                    for part in padded(side, max(map(len, side)), self.device)
                )
            )
            if corruption is None:
                loss = causal_losses(net, batch, smoothing=0.0).words
                count = int(batch.target_lengths.sum()) + len(some)  # with the end tokens
            else:
                hypothesis = corruption.first_hypothesis(batch.target, net.shape.vocab_size, rng)
                stages = corruption.stages
                loss = parallel_losses(
                    net, batch, hypothesis, stages=stages, sum_stages=False, smoothing=0.0
                ).words
                count = int(batch.target_lengths.sum())
            total, words = total + count * float(loss), words + count
        net.train(training)
        net.use_kernels(self.kernels)
        return total / max(1, words)
