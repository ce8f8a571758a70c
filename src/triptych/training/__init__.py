"""Objectives, the only training loop, the gap to the truth, and many seeds at once."""
