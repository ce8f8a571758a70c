"""Test cases written by a code model, guided by a verifier [li, 3.2.2 and 3.2.3]."""
