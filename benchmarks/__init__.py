"""Speed against peers: ratios measured in one run, because machines are shared and noisy."""
