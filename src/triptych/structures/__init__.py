"""One generative model per file. A file with `examples()` is found by the laws and the CLI."""
