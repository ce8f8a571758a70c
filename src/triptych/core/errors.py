"""What a user's mistake raises. This module imports nothing, so that any program may catch it."""


class UserError(ValueError):
    """A mistake in what the user gave; the message is one sentence that says how to mend it.

    parameter   the argument, field or option that the sentence is about, where there is just one;
                of a part, such as "prompts[3]", the name of the whole
    """

    def __init__(self, sentence: str = "", *, parameter: str | None = None) -> None:
        super().__init__(sentence)
        whole = (parameter or "").partition("[")[0]
        self.parameter = whole if whole.isidentifier() else None
