"""Attention patterns of trained bracket networks."""
