"""Li, 4.2.2 to 4.2.4: parallel decoding by iterative refinement."""
