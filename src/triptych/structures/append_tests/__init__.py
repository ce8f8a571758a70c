"""Test cases of a function that appends an item to a list: prompts, and what is right about the
lines that a model writes [li, 3.2.2].
"""
