"""What the studies of masking share."""
