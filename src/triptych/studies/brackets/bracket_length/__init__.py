"""Balance of trained attention, and how far networks generalise to longer strings."""
