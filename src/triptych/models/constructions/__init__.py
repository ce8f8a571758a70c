"""Networks whose weights are set by a proof, in float64.

parallel     every position predicted at once [li, 4.3.9]
normalised   one layer with the layer norm of [li, (2.42)]
brackets     transformers that write brackets; the first layers of [li, (2.55)-(2.57)]
balanced     the weights of [li, Theorem 2.2.1 and Corollary 2.2.1]
heads        one layer with several heads, some of which change nothing
"""

from triptych.models.constructions.parallel import (
    Block,
    ParallelTransformer,
    compiled_law,
    compiled_map,
)

__all__ = ["Block", "ParallelTransformer", "compiled_law", "compiled_map"]
