"""An attention head on data with a memory against a linear head on plain data [wei, 5]."""
