"""Pages that replay a guided generation."""
