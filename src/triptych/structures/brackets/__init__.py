"""Models of brackets, and what they share: moves, stacks and parses."""
