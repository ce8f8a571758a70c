"""Masked training and parallel decoding [li, 4.1, 4.2.1]."""
