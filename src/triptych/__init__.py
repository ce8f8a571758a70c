"""Triptych: how structure in data meets training and inference in language models, exactly."""

__version__ = "0.1.0"
