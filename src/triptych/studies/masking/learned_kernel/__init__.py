"""What samplers return on a trained masked network."""
