"""Networks: one small transformer, the language models it makes, and decoding with a cache."""
