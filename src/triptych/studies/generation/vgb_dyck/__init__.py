"""Guided algorithms on a trained network with a trained value [li, 3.3.1]."""
