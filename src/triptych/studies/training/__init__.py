"""How far from the truth trained networks are; of neither work."""
