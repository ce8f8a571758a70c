"""Doors: what a library calls to draw is answered by the search, one file per library."""
