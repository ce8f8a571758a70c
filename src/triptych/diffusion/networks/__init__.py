"""Networks of others as denoisers: masked ones by logits, block diffusion with its cache."""
