"""What the studies of guided generation share."""
