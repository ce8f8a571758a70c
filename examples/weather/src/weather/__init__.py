"""An example of a package that adds to Triptych by entry points."""
