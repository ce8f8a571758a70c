"""What a user's mistake raises. This module imports nothing, so that any program may catch it."""


class UserError(ValueError):
    """A mistake in what the user gave; the message is one sentence that says how to mend it."""
