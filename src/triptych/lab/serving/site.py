"""What is at each path: pages, answers of the exact engine, the report, and files of the folder."""

import json
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote

from triptych.core.validation import UserError
from triptych.lab.results.gathering import REPORT, gather, render_report_of
from triptych.lab.running.store import FILE, Store
from triptych.lab.serving import block_gibbs, hidden_tokens, pages, replays, verifier_error
from triptych.lab.serving.live import Live
from triptych.lab.serving.questions import Question

ANSWERS: Mapping[str, Callable[[Question], dict[str, Any]]] = {
    "hidden-tokens": hidden_tokens.answer,
    "blocks": block_gibbs.answer,
    "verifier-error": verifier_error.answer,
}
MAX_QUESTION = 4000  # characters
MAX_FILE = 2**26  # bytes of a page in the run folder


class NotFound(Exception):
    """There is nothing at this path."""


class Answer(NamedTuple):
    """What is sent back.

    alone
        The page comes from a file, and may not read the other pages.
    """

    text: str
    type: str = "text/html"
    status: HTTPStatus = HTTPStatus.OK
    location: str = ""
    alone: bool = False


class Site:
    """The pages of a run folder, which may grow or not be there yet.

    Without a folder there are the hands-on pages alone.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.pages = pages.offered(folder)
        self.live = None if folder is None else Live(folder)
        self._computing = threading.Lock()  # one question at a time: they share the cores
        self._reporting = threading.Lock()
        self._report: tuple[str, str] | None = None
        self._behind: threading.Thread | None = None

    def answer(self, path: str, query: str = "") -> Answer:
        """What is at a path below the token."""
        kind, _, name = path.partition("/")
        if self.folder and self.live:
            if path == "live":
                return _json(self.live.state() | {"files": sorted(_files(self.folder))})
            if path == "report":
                return self._report_page(self.folder, self.live)
            if kind == "files":
                return _file(self.folder, unquote(name))
        if path == "replay-page":
            with self._computing:
                return Answer(replays.page(_question(query)))
        if kind == "answers" and name in ANSWERS:
            with self._computing:
                return _json(ANSWERS[name](_question(query)))
        if path in self.pages:
            return Answer(pages.render(path, self.folder))
        raise NotFound(f"There is no page {path!r} here.")

    def _report_page(self, folder: Path, live: Live) -> Answer:
        """The report; at first the folder's own, if it is of the rows stored now.

        A new one is made behind it, with the judges of today.
        """
        if self._report is None and (kept := _written_report(folder)) is not None:
            if self._behind is None:
                make = threading.Thread(
                    target=self._current_report, args=(folder, live), daemon=True
                )
                self._behind = make
                make.start()
            return Answer(kept, alone=True)
        return Answer(self._current_report(folder, live))

    def _current_report(self, folder: Path, live: Live) -> str:
        """The report of the rows stored now; it is made again when units have ended."""
        with self._reporting:
            stamp = live.stamp()
            if self._report is None or self._report[0] != stamp:
                self._report = (stamp, _rendered_report(folder))
            return self._report[1]


def _written_report(folder: Path) -> str | None:
    """The folder's report; None where there is none or the rows are newer."""
    file, store = folder / REPORT, folder / FILE
    log = store.with_name(f"{FILE}-wal")  # what SQLite has not put into the store yet
    try:
        rows = store.stat().st_mtime_ns
        if log.exists() and log.stat().st_size:
            rows = max(rows, log.stat().st_mtime_ns)
        if not _is_plain(file) or file.stat().st_mtime_ns < rows:
            return None
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _rendered_report(folder: Path) -> str:
    if not (folder / FILE).exists():
        return render_report_of(gather(None))
    with Store.read(folder) as store:
        return render_report_of(gather(store), folder=folder)


def _files(folder: Path) -> dict[str, Path]:
    """The HTML files that lie in the run folder itself."""
    return {file.name: file for file in folder.glob("*.html") if _is_plain(file)}


def _file(folder: Path, name: str) -> Answer:
    file = _files(folder).get(name)  # a name of the list, never a path
    if file is None:
        raise NotFound(f"There is no page {name!r} in the run folder.")
    return Answer(file.read_text(encoding="utf-8", errors="replace"), alone=True)


def _is_plain(file: Path) -> bool:
    return file.is_file() and not file.is_symlink() and file.stat().st_size <= MAX_FILE


def _question(query: str) -> Any:
    """The JSON value of `question=...`."""
    if len(query) > MAX_QUESTION:
        raise UserError(
            f"the question has {len(query)} characters; at most {MAX_QUESTION} fit",
            parameter="query",
        )
    asked = parse_qs(query).get("question", [])
    if len(asked) != 1:
        raise UserError(f"the address has {len(asked)} questions; it needs one, question=...")
    try:
        return json.loads(asked[0])
    except (json.JSONDecodeError, RecursionError) as error:
        raise UserError(f"the question is no JSON ({error})") from error


def _json(content: Mapping[str, Any]) -> Answer:
    return Answer(json.dumps(content), "application/json")
