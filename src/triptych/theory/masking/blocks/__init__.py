"""Block dynamics: redrawing blocks of positions, as an exact operator."""
