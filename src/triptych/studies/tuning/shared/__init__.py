"""What the studies of tuning share."""
