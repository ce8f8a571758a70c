"""Verifiers and grammars on a canvas: texts of a diffusion language model that keep a rule."""
