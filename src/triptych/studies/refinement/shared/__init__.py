"""What the studies of refinement share."""
