"""Prompts from a file: JSON lines, or plain text with a prompt a line.

A JSON line is a string, or an object with `prompt` (a text) or `messages` (a conversation) and
perhaps an `id`. Where there is no id, the number of the line is the id. A prompt draws from a
stream that its id names, so its text does not depend on where it stands in the file.
"""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

from triptych.core.validation import UserError, shown

STDIN = "-"
_KEYS = ("prompt", "messages", "id")
_SHOWN = 3  # bad lines in an error


class Prompt(NamedTuple):
    """One thing to complete.

    id         a text or a whole number, different from all others
    prompt     a text, or a list of messages with `role` and `content`
    """

    id: str | int
    prompt: str | list[dict[str, str]]

    @property
    def is_conversation(self) -> bool:
        return not isinstance(self.prompt, str)

    @property
    def stream(self) -> int:
        """The number of the stream it draws from, by its id."""
        digest = hashlib.sha256(str(self.id).encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(digest[:8], "big") >> 1


def read_prompts(file: str | Path) -> list[Prompt]:
    """The prompts of a .jsonl or .txt file; "-" reads JSON lines from standard input."""
    name = "standard input" if str(file) == STDIN else str(file)
    lines = _lines(file)
    plain = str(file).endswith(".txt")
    found: list[Prompt] = []
    problems: list[str] = []
    seen: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            prompt = Prompt(number, line) if plain else _prompt(line, number)
            if (other := seen.get(str(prompt.id))) is not None:
                raise UserError(f"has the id {shown(prompt.id)} of line {other}; ids must differ")
        except UserError as error:
            problems.append(f"line {number} {error}")
            continue
        seen[str(prompt.id)] = number
        found.append(prompt)
    if problems:
        more = len(problems) - _SHOWN
        also = f"; and {more} more lines are wrong" if more > 0 else ""
        raise UserError(f"{name}: {'; '.join(problems[:_SHOWN])}{also}")
    if not found:
        raise UserError(f"{name} has no prompts; it needs at least one line")
    return found


def _lines(file: str | Path) -> list[str]:
    try:
        data = sys.stdin.buffer.read() if str(file) == STDIN else Path(file).read_bytes()
    except OSError as error:
        raise UserError(
            f"the prompts {str(file)!r} cannot be read ({error.strerror or error}); give a .jsonl "
            "file, a .txt file, or - for standard input",
            parameter="file",
        ) from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise UserError(f"{file}: line {line} is not UTF-8 text", parameter="file") from error
    return [line.removesuffix("\r") for line in text.split("\n")]


def _prompt(line: str, number: int) -> Prompt:
    """The prompt of a JSON line; an error says what is wrong with the line."""
    try:
        read = json.loads(line)
    except (ValueError, RecursionError) as error:
        why = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        raise UserError(
            f'is not JSON ({why}); it must be a string, as "Write a poem", or an object, as '
            '{"prompt": "Write a poem"} (a file with plain lines must be called .txt)'
        ) from error
    if isinstance(read, str):
        return Prompt(number, read)
    if not isinstance(read, dict):
        raise UserError(f"is {shown(read)}; it must be a string or an object with `prompt`")
    if unknown := [key for key in read if key not in _KEYS]:
        raise UserError(f"has the key {unknown[0]!r}; the keys are {', '.join(_KEYS)}")
    if ("prompt" in read) == ("messages" in read):
        raise UserError("must have either `prompt` or `messages`")
    name = read.get("id", number)
    if isinstance(name, bool) or not isinstance(name, str | int):
        raise UserError(
            f"has the id {shown(name)}; it must be a text or a whole number", parameter="number"
        )
    if "prompt" in read:
        if not isinstance(read["prompt"], str):
            raise UserError(f"has the prompt {shown(read['prompt'])}; it must be a text")
        return Prompt(name, read["prompt"])
    return Prompt(name, _messages(read["messages"]))


def _messages(said: Any) -> list[dict[str, str]]:
    if not isinstance(said, list) or not said:
        raise UserError(
            f"has the messages {shown(said)}; they must be a list of at least one", parameter="said"
        )
    for message in said:
        if not isinstance(message, dict) or set(message) != {"role", "content"}:
            raise UserError(
                f"has the message {shown(message)}; it must be an object with `role` and `content`"
            )
        if not all(isinstance(value, str) for value in message.values()):
            raise UserError(f"has the message {shown(message)}; role and content must be texts")
    return said
