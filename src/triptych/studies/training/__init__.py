"""What training does, on structures whose truth is known."""
