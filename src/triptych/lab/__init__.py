"""What a person types and sees. Nothing imports this package."""
