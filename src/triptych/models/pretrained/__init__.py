"""Networks that others trained, behind our protocols."""
