"""What one layer of attention learns about topics, in closed form [li, 2.1.3, 2.1.4, 2.1.7]."""
