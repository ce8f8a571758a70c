"""How the distance of refinement from beam search depends on the number of training pairs."""
