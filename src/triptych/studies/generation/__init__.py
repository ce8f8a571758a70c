"""Verifier-guided generation [li, 3]."""
