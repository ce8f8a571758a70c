"""From stored rows to verdicts, figures and the report."""
