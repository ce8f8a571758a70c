"""Fit a structure to a table of tokens: reading the table, fitting, the file that it writes."""
