"""The numbers of Tables 3.1 to 3.5 and 3.16 of the thesis [li, 3.2.1 and 3.2.3]."""

# Accuracies of Tables 3.1, 3.2 and 3.4: by stride; by quota and stride.
PUBLISHED_STRIDES = {0: 0.331, 1: 0.366, 2: 0.438, 4: 0.591, 8: 0.790}
PUBLISHED_GREEDY = 0.334
PUBLISHED_QUOTAS = {
    (1, 2): 0.421,
    (1, 4): 0.500,
    (1, 6): 0.604,
    (2, 2): 0.457,
    (2, 4): 0.634,
    (2, 6): 0.762,
    (4, 2): 0.518,
    (4, 4): 0.762,
    (4, 6): 0.921,
}
PUBLISHED_REFUSED = {  # by nucleus sampling, by argmax
    (1, 2): (0.313, 0.344),
    (1, 4): (0.337, 0.319),
    (1, 6): (0.331, 0.288),
    (2, 2): (0.347, 0.328),
    (2, 4): (0.357, 0.349),
    (2, 6): (0.374, 0.373),
    (4, 2): (0.371, 0.353),
    (4, 4): (0.419, 0.404),
    (4, 6): (0.509, 0.523),
}
# of 10,000 prompts, by top_p and whether Algorithm 1 is used
PUBLISHED_ERRORS = {
    (0.9, False): 240.0,
    (0.9, True): 179.4,
    (1.0, False): 461.8,
    (1.0, True): 200.0,
}
PUBLISHED_NO_REDO = 245.8
PUBLISHED_DISTINCT = {0.9: 5.47, 1.0: 5.84}  # without a verifier, by top_p
PUBLISHED_GUIDED_DISTINCT = 5.52
PUBLISHED_PROMPTS = 100  # of Table 3.5, over which its ± are deviations
PUBLISHED_SPREAD = {0.9: 3.06, 1.0: 3.29}
PUBLISHED_GUIDED_SPREAD = 3.28
# Table 3.4: how often Algorithm 1 backtracked, by quota and stride, and at how many prefixes. All
# accuracies of Table 3.2 are multiples of 1/164.
PUBLISHED_BACKTRACKS = {
    (1, 2): 163,
    (1, 4): 163,
    (1, 6): 163,
    (2, 2): 311,
    (2, 4): 297,
    (2, 6): 286,
    (4, 2): 600,
    (4, 4): 532,
    (4, 6): 489,
}
PUBLISHED_PREFIXES = 164
NEARLY_ALL = 95.0  # %: what judges take "nearly all" to mean


def points(more: float, less: float) -> float:
    """A difference of two printed accuracies, in points to the printed digits."""
    return round(100 * (more - less), 1)
