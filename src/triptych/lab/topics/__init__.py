"""Topics of a user's own text in a user's own model: measuring, a table, a page."""
