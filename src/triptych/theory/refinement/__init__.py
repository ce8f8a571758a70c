"""Li, 4.2.2: the best possible refiner, and the exact law of what refinement writes."""
