"""Eigenvalues and hitting times with a proof of their accuracy."""
