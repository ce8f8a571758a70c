"""What refinement writes where the law of translations is known."""
