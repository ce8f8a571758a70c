"""Wei, Xie and Ma: when a head or a prompt on the exact masked LM solves a task."""
