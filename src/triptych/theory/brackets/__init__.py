"""Li, 2.2: which attention can write brackets, and how little a pattern or a matrix tells."""
