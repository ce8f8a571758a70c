"""Our algorithms behind an OpenAI endpoint: `triptych gateway`."""
