"""What the studies of topics share."""
