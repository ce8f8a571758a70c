"""How many questions constrained generation needs [li, 3.1]."""
