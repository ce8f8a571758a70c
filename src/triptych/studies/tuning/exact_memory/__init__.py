"""Attention heads and soft prompts on memory HMMs, exactly [wei, 4, C]."""
