"""Soft prompts on the exact masked LM [wei, 3.1 and B]."""
