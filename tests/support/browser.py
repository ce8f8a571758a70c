"""Chromium with keys and pictures: a page that a test can type into, over a pipe.

`Browser` starts Chromium with `--remote-debugging-pipe`: messages are JSON texts that end with a
zero byte, so that no library is needed.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import time

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
TIMEOUT_S = 60
KEYS = {
    "Tab": ("Tab", 9, ""),
    "Enter": ("Enter", 13, "\r"),
    " ": ("Space", 32, " "),
    "/": ("Slash", 191, "/"),
    "n": ("KeyN", 78, "n"),
    "Escape": ("Escape", 27, ""),
    "ArrowLeft": ("ArrowLeft", 37, ""),
    "ArrowRight": ("ArrowRight", 39, ""),
    "Home": ("Home", 36, ""),
    "End": ("End", 35, ""),
}
SHIFT = 8
FOCUSED = """(() => {
  const at = document.activeElement, style = getComputedStyle(at);
  const box = at.getBoundingClientRect();
  const text = at.textContent.trim().slice(0, 60);
  const labels = at.labels && at.labels.length ? at.labels[0].textContent.trim() : '';
  const name = at.getAttribute('aria-label') || labels || text || at.title || at.placeholder || '';
  return {tag: at.tagName, id: at.id, text, name,
    ring: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 1,
    shown: box.width > 0 && box.height > 0 && box.right > 0 && box.bottom > 0
      && box.left < innerWidth && box.top < innerHeight};
})()"""


class Browser:
    """One headless Chromium with one page: `with Browser(folder) as page: page.open(address)`."""

    def __init__(self, profile, *, width=1280, height=900, dark=False):
        self.size, self.dark, self._number, self._waiting = (width, height), dark, 0, b""
        ours_out, theirs_out = os.pipe()  # what Chromium says
        theirs_in, ours_in = os.pipe()  # what it is told
        self._out, self._in = ours_out, ours_in
        command = [
            "bash",
            "-c",
            f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}',
            "chromium",
            str(CHROMIUM),
            *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
            *("--disable-background-networking", "--remote-debugging-pipe"),
            f"--user-data-dir={profile}",
            "about:blank",
        ]
        self._process = subprocess.Popen(
            command, pass_fds=(theirs_in, theirs_out), stderr=subprocess.DEVNULL
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._session = None

    def __enter__(self):
        found = self.tell("Target.getTargets")["targetInfos"]
        target = next(each["targetId"] for each in found if each["type"] == "page")
        attached = self.tell("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        width, height = self.size
        self.tell(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        wishes = {
            "prefers-color-scheme": "dark" if self.dark else "light",
            "prefers-reduced-motion": "reduce",  # so that a page scrolls at once
        }
        features = [{"name": name, "value": value} for name, value in wishes.items()]
        self.tell("Emulation.setEmulatedMedia", features=features)
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)

    def tell(self, method, **parameters):
        """One command of the DevTools protocol, and its answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._in, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def _receive(self):
        while b"\0" not in self._waiting:
            ready, _, _ = select.select([self._out], [], [], TIMEOUT_S)
            assert ready, "Chromium does not answer"
            more = os.read(self._out, 2**16)
            assert more, "Chromium has ended"
            self._waiting += more
        text, _, self._waiting = self._waiting.partition(b"\0")
        return json.loads(text)

    def open(self, address):
        self.tell("Page.navigate", url=str(address))
        self.wait("document.readyState === 'complete'")

    def value(self, script):
        """What a script says."""
        answer = self.tell("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait(self, script):
        """Until a script says true."""
        end = time.monotonic() + TIMEOUT_S
        while not self.value(script):
            assert time.monotonic() < end, f"never: {script}"
            time.sleep(0.05)

    def press(self, key, shift=False):
        code, number, text = KEYS[key]
        known = {"key": key, "code": code, "windowsVirtualKeyCode": number}
        known["modifiers"] = SHIFT * shift
        more = {"text": text} if text else {}
        self.tell("Input.dispatchKeyEvent", type="keyDown", **known, **more)
        self.tell("Input.dispatchKeyEvent", type="keyUp", **known)

    def type(self, text):
        self.tell("Input.insertText", text=text)

    @property
    def focused(self):
        """The element with the focus: tag, id, text, name, and whether a ring and it are shown."""
        return self.value(FOCUSED)

    def picture(self, path, *, whole=False):
        found = self.tell("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))
        return path


def walk(page, *, most=200):
    """Tab from the start of the page to its end: every stop, each with a ring and in sight.

    A page that never lets the focus go, or a stop without a visible ring, fails.
    """
    page.value("document.activeElement.blur(), window.scrollTo(0, 0)")
    stops, ids = [], []
    for _ in range(most):
        page.press("Tab")
        page.value(_NUMBERED)
        stop = page.focused
        number = page.value("document.activeElement.dataset.stop")
        if stop["tag"] == "BODY" or number in ids:
            assert stop["tag"] == "BODY" or number == ids[0], f"the focus is held at {stop}"
            return stops
        ids.append(number)
        assert stop["shown"], f"out of sight: {stop}"
        assert stop["ring"], f"no ring: {stop}"
        stops.append(stop)
    raise AssertionError(f"the end is not reached after {most} stops: {stops[-3:]}")


_NUMBERED = """(() => {
  const at = document.activeElement;
  window.stops = window.stops || 0;
  if (at !== document.body && !at.dataset.stop) at.dataset.stop = ++window.stops;
})()"""
