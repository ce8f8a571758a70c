"""What `triptych law` does: find a sampler and its promise, judge it, say so."""
