"""Guided generation for people who think in strings: text in, text out."""
