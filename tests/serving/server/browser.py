"""Controls a headless Chromium over the DevTools protocol. Commands and responses are JSON, sent through two pipes, and
no other package is needed.

Protocol documentation: https://chromedevtools.github.io/devtools-protocol
"""

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from base64 import b64decode
from contextlib import ExitStack, suppress

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
TIMEOUT_S = 120
# Chromium reads commands from file descriptor 3 and writes responses to 4.
_LAUNCH = """\
import fcntl, os, sys
commands, answers = (fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3])
os.dup2(commands, 3)
os.dup2(answers, 4)
os.execvp(sys.argv[3], sys.argv[3:])
"""
_OPTIONS = (
    *("--headless", "--remote-debugging-pipe", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
    *("--no-sandbox", "--disable-background-networking", "--disable-component-update", "--hide-scrollbars"),
)


def chromium():
    """Return the path of the Chromium program, or None if Chromium is not installed."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One tab of a Chromium that runs inside the context.

    Attributes:
        requests: URLs that the tab has requested.
        complaints: Messages on the tab's console, such as violations of the Content-Security-Policy.
    """

    def __init__(self, *, height=1000, width=1280):
        self.requests, self.complaints = [], []
        self._buffer, self._count = b"", 0
        self._stack = ExitStack()
        with ExitStack() as stack:
            folder = stack.enter_context(
                tempfile.TemporaryDirectory(prefix="pixprep-browser-", ignore_cleanup_errors=True)
            )
            theirs, self._commands = os.pipe()
            self._answers, ours = os.pipe()
            launch = [sys.executable, "-c", _LAUNCH, str(theirs), str(ours), chromium(), *_OPTIONS]
            self._process = subprocess.Popen(
                [*launch, f"--user-data-dir={folder}", "about:blank"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs, ours),
            )
            os.close(theirs)
            os.close(ours)
            stack.callback(self._end)
            self._session = None
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "DOM", "Log", "Network"):
                self.call(f"{domain}.enable")
            self.resize(height, width)
            self._stack = stack.pop_all()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._stack.close()

    def _end(self):
        with suppress(OSError):
            self._send("Browser.close", {})
        os.close(self._commands)
        try:
            self._process.wait(120)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._answers)

    def call(self, method, **parameters):
        """Send a command, and return its result."""
        number = self._send(method, parameters)
        deadline = time.monotonic() + TIMEOUT_S
        while (message := self._read(deadline, method)).get("id") != number:
            self._notice(message)
        assert "error" not in message, f"{method}: {message['error']}"
        return message["result"]

    def _send(self, method, parameters):
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        session = (
            {"sessionId": self._session} if self._session and not method.startswith(("Target.", "Browser.")) else {}
        )
        data = json.dumps(message | session).encode() + b"\0"
        while data:
            data = data[os.write(self._commands, data) :]
        return self._count

    def _read(self, deadline, what):
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._answers], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"{what}: Chromium does not answer"
            data = os.read(self._answers, 1 << 20)
            assert data, f"{what}: Chromium has ended"
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def _notice(self, message):
        parameters = message.get("params", {})
        match message.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(parameters["request"]["url"])
            case "Log.entryAdded":
                self.complaints.append(parameters["entry"]["text"])
            case "Runtime.exceptionThrown":
                details = parameters["exceptionDetails"]
                self.complaints.append(details.get("exception", {}).get("description", details["text"]))

    def open(self, url):
        """Navigate to a page."""
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def run(self, script):
        """Evaluate a JavaScript expression and return its value. A promise is awaited."""
        result = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait(self, script, *, within_s=TIMEOUT_S):
        """Evaluate an expression repeatedly, and return its first true value."""
        deadline = time.monotonic() + within_s
        while not (value := self.run(script)):
            assert time.monotonic() < deadline, f"not in time: {script}: {self.run('document.body.innerText')!r}"
            time.sleep(0.05)
        return value

    def text(self, selector):
        """Return the visible text of an element."""
        return self.run(f"document.querySelector({json.dumps(selector)}).innerText")

    def choose(self, selector, *paths):
        """Choose files in a file input, as a user does in the file dialog."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=node, files=[str(path) for path in paths])

    def drop(self, *paths, x=300, y=200):
        """Drag files into the window, and drop them there."""
        data = {"items": [], "files": [str(path) for path in paths], "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            self.call("Input.dispatchDragEvent", type=kind, x=x, y=y, data=data)

    def press(self, key, code=None, text=""):
        """Press one key of the keyboard."""
        number = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32}[key]
        given = {"key": key, "code": code or key, "windowsVirtualKeyCode": number}
        self.call("Input.dispatchKeyEvent", type="keyDown", **given, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **given)

    def resize(self, height, width):
        """Set the size of the window in pixels."""
        self.call("Emulation.setDeviceMetricsOverride", height=height, width=width, deviceScaleFactor=1, mobile=False)

    def prefer(self, scheme):
        """Emulate a user who prefers the colour scheme ``light`` or ``dark``."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def screenshot(self):
        """Return a screenshot of the whole page as a PNG."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        return b64decode(self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)["data"])
