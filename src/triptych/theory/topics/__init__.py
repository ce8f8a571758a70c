"""Li, 2.1: one layer on topic documents, in closed form."""
