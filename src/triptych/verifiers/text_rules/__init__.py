"""Ready rules on text: can a text still become right, and is it right when it is finished?

Every rule is called as `rule(text, finished=False)`. While a text grows, True means that some
continuation of it is right; with `finished=True` it means that the text itself is right.
`verifiers.text.TextRule` makes a verifier of token ids out of a rule.
"""
