"""Li, 2.1: topics and one layer of attention (Figures 2.1 to 2.10, Tables 2.1 and 2.2)."""
