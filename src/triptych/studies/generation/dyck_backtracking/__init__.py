"""Backtracking with a light verifier on a language model of brackets [li, 3.2.1]."""
