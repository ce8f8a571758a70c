"""What the studies of trained bracket networks share."""
