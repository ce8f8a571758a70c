"""Li, 4.1: what masked training costs, and what samplers of a masked model do."""
