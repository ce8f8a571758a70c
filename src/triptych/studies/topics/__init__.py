"""Topics [li, 2.1]."""
