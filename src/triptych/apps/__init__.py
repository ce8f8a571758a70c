"""Programs for people: each has a folder here and a command in the lab."""
