"""Theorems as functions: what must hold and by what margin, and what the proof constructs."""
