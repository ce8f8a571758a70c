"""Fitting exact models to data: EM, gradients, constraints, standard errors, and what comes out."""
