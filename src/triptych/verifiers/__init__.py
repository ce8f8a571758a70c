"""Process verifiers: exact ones, noisy ones with a dial, and trained ones."""
