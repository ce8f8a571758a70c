"""Which guided algorithm wins, on one task whose truth is known."""
