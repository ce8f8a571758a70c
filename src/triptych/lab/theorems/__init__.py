"""Which theorems apply to a model of your own."""
