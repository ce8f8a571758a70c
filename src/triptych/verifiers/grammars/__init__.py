"""Grammars as verifiers: a JSON schema, a regular expression or a Lark grammar, by an engine.

    Grammar.from_json_schema({"type": "integer"}).on(lm)

An engine says for the whole vocabulary which token may come next. `llguidance` and `xgrammar` are
optional packages; `triptych` is our own rules, slow and exact. `audit` compares an engine with the
definition of JSON Schema, and `features` keeps what was found for each version.
"""
