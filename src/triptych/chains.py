"""Samplers of full sequences, on anything with `masked_log_probs`: the truth or a network.

    from triptych.chains import MaskLaw, TorchRng, gibbs

    ising = triptych.Ising.random(4, scale=0.5, seed=0)
    tokens, rng = ising.sample(8, rng=0), TorchRng(1)
    tokens = gibbs.step(ising, tokens, MaskLaw.of_size(4, 1), rng)

Modules
    gibbs redraws a block of positions exactly, parallel draws many at once or unmasks step by step,
    refinement writes all positions again, spins runs thousands of chains of an Ising model.
What they share
    A MaskLaw says which positions are redrawn together. MaskedRefiner makes a refiner of a masked
    model, refine runs one. Counted wraps a model and counts its questions. TorchRng draws.
Promises of your own sampler
    Chain and OneShot say what it keeps, and check_sampler checks it by enumeration.
"""

from typing import TYPE_CHECKING

from triptych.names import loaded_when_used

if TYPE_CHECKING:
    from triptych.core.axioms import check_sampler as check_sampler
    from triptych.core.counting import Counted as Counted
    from triptych.core.mask_laws import MaskLaw as MaskLaw
    from triptych.core.randomness import TorchRng as TorchRng
    from triptych.core.samplers import Chain as Chain
    from triptych.core.samplers import OneShot as OneShot
    from triptych.inference.chains import gibbs as gibbs
    from triptych.inference.chains import parallel as parallel
    from triptych.inference.chains import refinement as refinement
    from triptych.inference.chains import spins as spins
    from triptych.inference.chains.refinement import MaskedRefiner as MaskedRefiner
    from triptych.inference.chains.refinement import refine as refine

# made from these imports by `python tools/names.py`
_HOME = {
    "Chain": "core.samplers:Chain",
    "Counted": "core.counting:Counted",
    "MaskLaw": "core.mask_laws:MaskLaw",
    "MaskedRefiner": "inference.chains.refinement:MaskedRefiner",
    "OneShot": "core.samplers:OneShot",
    "TorchRng": "core.randomness:TorchRng",
    "check_sampler": "core.axioms:check_sampler",
    "gibbs": "inference.chains.gibbs",
    "parallel": "inference.chains.parallel",
    "refine": "inference.chains.refinement:refine",
    "refinement": "inference.chains.refinement",
    "spins": "inference.chains.spins",
}

__all__ = sorted(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]
__getattr__, __dir__ = loaded_when_used(__name__, _HOME)
