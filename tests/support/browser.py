"""A real browser without a window, told what to do over a pipe in Chromium's own protocol."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
PATIENCE = 60.0
"""Seconds for one answer."""


def installed() -> str | None:
    """Return the path of a browser, if there is one on this machine."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One tab of a browser."""

    def __init__(self, to: int, answers: int) -> None:
        self.to, self.answers = to, answers
        self.rest, self.number, self.session = b"", 0, ""
        self.said: list[str] = []
        """What pages wrote to the console, and errors in their scripts."""
        tab = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=tab, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.ask(f"{domain}.enable")
        self.ask("Emulation.setFocusEmulationEnabled", enabled=True)  # keys go to the page, as in a window in front

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Send one command and return its result; what the page says meanwhile is kept."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        message |= {"sessionId": self.session} if self.session else {}
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self.number:
            if answer.get("method") in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
                self.said.append(json.dumps(answer["params"]))
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self.rest:
            if not select.select([self.answers], [], [], PATIENCE)[0]:
                raise TimeoutError("the browser does not answer")
            if not (more := os.read(self.answers, 1 << 20)):
                raise RuntimeError("the browser has ended")
            self.rest += more
        first, _, self.rest = self.rest.partition(b"\0")
        message: dict[str, Any] = json.loads(first)
        return message

    def open(self, address: str, width: int = 1200, dark: bool = False, paper: bool = False) -> None:
        """Show a page at this width, and wait until it is there."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", media="print" if paper else "", features=[scheme])
        self.ask("Page.navigate", url=address)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def value(self, expression: str) -> Any:
        """Return what a JavaScript expression is worth on the page."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(f"{expression}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def until(self, expression: str, seconds: float = 20.0) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + seconds
        while not self.value(expression):
            if time.monotonic() > end:
                raise TimeoutError(f"never true on the page: {expression}")
            time.sleep(0.05)

    def press(self, key: str, code: int, text: str = "") -> None:
        """Press a key and let it go."""
        for kind in ("keyDown", "keyUp"):
            typed = {"text": text} if text and kind == "keyDown" else {}
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **typed)

    def picture(self, path: Path) -> Path:
        """Write the whole page as a picture."""
        found = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(found["data"]))
        return path

    def printed(self) -> bytes:
        """Return the page as it is printed, as a PDF."""
        return base64.b64decode(self.ask("Page.printToPDF", printBackground=False)["data"])


@contextmanager
def browser() -> Iterator[Browser]:
    """Start a browser with nothing in its profile, and end it."""
    path = installed()
    assert path is not None
    commands, to = os.pipe()
    answers, said = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        # Chromium reads commands from descriptor 3 and answers on 4; `commands` is the lower one of the two, so that
        # the first copy never overwrites the other.
        moves: list[tuple[int, ...]] = [(os.POSIX_SPAWN_DUP2, commands, 3), (os.POSIX_SPAWN_DUP2, said, 4)]
        silent = (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)
        words = [path, *QUIET, f"--user-data-dir={profile}"]
        process = os.posix_spawn(path, words, os.environ, file_actions=[*moves, silent])  # type: ignore[list-item]
        os.close(commands)
        os.close(said)
        try:
            yield Browser(to, answers)
        finally:
            os.close(to)
            os.close(answers)
            os.kill(process, signal.SIGTERM)
            os.waitpid(process, 0)
