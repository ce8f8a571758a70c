"""Li, 3: verifier-guided generation (Tables 3.1 to 3.5 and 3.16, Figures 3.1 and 3.2)."""
