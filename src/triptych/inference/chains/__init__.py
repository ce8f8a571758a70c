"""Samplers of full sequences that redraw positions again and again."""
