"""Checks for the notebooks with exercises: each says right, not right with a hint, or not yet."""
