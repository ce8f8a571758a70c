"""Li, 3.1 and 3.3: the cost of generation under a constraint, and the walk of VGB."""
