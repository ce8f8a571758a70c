"""The pages in Chromium: their scripts ask the engine and show what it answers."""

import re
import shutil
import subprocess
import threading

import pytest

from triptych.lab.serving.server import Server
from triptych.lab.serving.site import Site

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here"),
]


@pytest.fixture
def server(tmp_path):
    with Server(Site(tmp_path)) as opened:
        thread = threading.Thread(target=opened.serve_forever, args=(0.01,))
        thread.start()
        yield opened
        opened.shutdown()
        thread.join()


def loaded(server, path):
    """The page after its script has run."""
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    command += ["--virtual-time-budget=8000", server.address + path]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


@pytest.mark.parametrize(
    ("path", "said", "parts"),
    [
        ("", "Nothing was run into this folder yet", r'<ul class="studies"'),
        ("hidden-tokens", "2 tokens are hidden", r'class="bars guess"'),
        ("blocks", "With single spins the gap is 0.0216", r"<polyline"),
        ("verifier-error", "The winner is VGB", r"<polyline"),
        ("replay", "Tokenwise rejection with backtracking", r"<iframe"),
    ],
)
def test_a_page_shows_what_the_engine_answers(server, path, said, parts):
    page = loaded(server, path)
    text = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert said in text
    assert re.search(parts, text)
    assert re.search(r'id="problem"[^>]* hidden', text)
