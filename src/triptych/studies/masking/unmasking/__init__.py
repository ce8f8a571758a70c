"""How far from the truth samplers of masked diffusion write."""
