"""`triptych serve`: the report, replays and hands-on pages, on this machine alone."""
