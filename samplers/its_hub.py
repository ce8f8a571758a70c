"""its_hub: inference-time scaling with particles."""

from typing import Any

from samplers import definitions
from samplers.record import Case, Shelf

SHELF = Shelf("its_hub")

STEP = {"a": 0.6, "b": 0.4}
SCORES = {"a": 0.3, "b": 0.8, "aa": 0.7, "ab": 0.4, "ba": 0.2, "bb": 0.6}  # of a reward model


def _odds(text: str) -> float:
    return SCORES[text] / (1 - SCORES[text])


def _language_model(reference: str) -> Any:
    """Draws a step for each conversation; two conversations at once are the first iteration, and write `reference`."""
    import random

    from its_hub.api import AbstractLanguageModel

    class Steps(AbstractLanguageModel):
        async def agenerate(self, messages: Any, stop: str | None = None, **_: Any) -> Any:
            if len(messages) == 2:
                written = messages[0][-1].content if len(messages[0]) == 2 else ""
                drawn = [reference[len(written)]] * 2
            else:
                drawn = random.choices(list(STEP), list(STEP.values()), k=len(messages))
            return [{"role": "assistant", "content": step} for step in drawn]

    return Steps()


def _reward() -> Any:
    from its_hub.api import AbstractProcessRewardModel

    class Table(AbstractProcessRewardModel):
        def score(self, prompt_or_messages: Any, steps: list[str]) -> list[float]:
            return [SCORES[text] for text in steps]

        async def ascore(self, prompt_or_messages: Any, steps: list[str]) -> list[float]:
            return self.score(prompt_or_messages, steps)

    return Table()


def _steps() -> Any:
    """Texts of two letters: a step is a letter. The class writes max_steps + 1 steps."""
    from its_hub.core.lms.step_generation import StepGeneration

    return StepGeneration(max_steps=1, tokens_per_step=1)


@SHELF.add(
    "ParticleFiltering._resampling_systematic",
    promise="Perform systematic resampling from the given normalized weights",
    source="docstring of _resampling_systematic",
    note="three particles",
)
def systematic() -> Case:
    import numpy as np
    from its_hub.core.algorithms.particle_gibbs import ParticleFiltering

    weights = [0.45, 0.3, 0.25]
    filtering = ParticleFiltering(_steps(), _reward())
    return Case(
        lambda: tuple(filtering._resampling_systematic([0, 1, 2], np.array(weights), 3)),
        definitions.systematic_resampling(weights, 3),
    )


def _finished(coroutine: Any) -> Any:
    """What a coroutine returns that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("the coroutine waits for something")


@SHELF.add(
    "ParticleGibbs, two iterations, two particles",
    promise="Particle Gibbs (PG): num_iterations > 1",
    source="docstring of ParticleGibbs; a particle Gibbs step leaves the filter's target invariant (Andrieu et al., 2010)",
    note="texts of two steps. A reference is stopped from the start, so that in early steps it is resampled by its "
    "last weight, although the comment says 'Use partial log weights at the current step for fair comparison'",
    issue="its_hub-particle-gibbs.md",
)
def particle_gibbs() -> Case:
    from its_hub.core.algorithms.particle_gibbs import ParticleGibbs

    algorithm = ParticleGibbs(_steps(), _reward(), num_iterations=2, resampling_method="systematic")

    def step(reference: str) -> str:
        """The reference after the second iteration, when the first one left `reference`."""
        found = _finished(
            algorithm.ainfer(_language_model(reference), "?", 4, return_response_only=False)
        )
        return found.responses_lst[1][found.ref_indices_lst[1][0]]["content"]

    # The weights of every step, and the last weight once more: the reference is drawn by it after resampling by it.
    target = definitions.normalised(
        {x + y: STEP[x] * STEP[y] * _odds(x) * _odds(x + y) ** 2 for x in STEP for y in STEP}
    )
    return Case(step, target, start=target)
