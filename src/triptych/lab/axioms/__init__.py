"""Finding examples, and checking their axioms."""
