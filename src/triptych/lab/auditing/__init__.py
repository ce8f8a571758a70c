"""`triptych audit-grammar`: an engine against JSON Schema, and against a model's own law."""
