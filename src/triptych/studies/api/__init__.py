"""What a study is made of: settings, units and rows with types, checks, verdicts, figures."""
