"""Li, 4.1 and 4.2.1: masked training and parallel decoding (Figures 4.1 to 4.3)."""
