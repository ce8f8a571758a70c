"""The theorems of [li, 2.2], judged on weights that are written down, not trained."""
