"""Ready promises of samplers, one kind per file; `laws.contract` holds samplers to them."""
