"""Does hiding more spins at once fit an Ising model better?"""
