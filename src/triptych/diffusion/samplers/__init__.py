"""The published samplers of diffusion language models, one in each file."""
