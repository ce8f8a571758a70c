"""Contracts, randomness, the reference table, and numbers with their uncertainty."""
