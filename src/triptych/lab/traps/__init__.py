"""The interpretability trap: pairs of networks whose attention misleads, to score methods."""
