"""Diffusion language models: denoisers, and the published samplers by their names and laws."""
