"""Who reaches the large mode of a clique of spins, and what parallel decoding can make."""
