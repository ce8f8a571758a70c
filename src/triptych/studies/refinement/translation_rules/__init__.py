"""What the rule for repeated tokens changes in real translations."""
