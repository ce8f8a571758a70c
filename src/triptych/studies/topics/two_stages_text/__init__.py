"""Two stages of training in every layer of a transformer on natural text."""
