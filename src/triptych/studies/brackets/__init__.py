"""Li, 2.2: transformers that write brackets, and what their attention tells."""
