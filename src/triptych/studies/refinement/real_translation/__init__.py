"""Translation of real sentences, in parallel and from left to right."""
