"""Parallel decoding by iterative refinement [li, 4.2.2 to 4.2.4]."""
