"""Generation guided by a verifier: one algorithm per file."""
