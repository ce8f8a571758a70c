"""Downstream tasks on a frozen masked model: labels, heads, soft prompts."""
