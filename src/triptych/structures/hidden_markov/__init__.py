"""Hidden Markov models, with and without a memory, and their messages."""
