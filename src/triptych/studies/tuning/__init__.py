"""Head and prompt tuning on hidden Markov models [wei]."""
