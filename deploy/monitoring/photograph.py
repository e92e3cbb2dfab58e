#!/usr/bin/env python3
"""Takes a screenshot of a page in Chromium: photograph.py URL FILE WIDTH HEIGHT SECONDS [dark]

The page is open for SECONDS first, since rates need time to appear."""

import base64
import json
import os
import subprocess
import sys
import tempfile
import time


class Browser:
    """Speaks Chromium's DevTools protocol through a pipe: JSON objects, each followed by a zero byte."""

    def __init__(self, profile):
        inside, self.to = os.pipe()
        back, outside = os.pipe()
        # The browser reads 3 and writes 4.
        wire = f'exec chromium "$@" 3<&{inside} 4>&{outside}'
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe"]
        command = ["bash", "-c", wire, "chromium", *options, f"--user-data-dir={profile}"]
        self.process = subprocess.Popen(command, pass_fds=(inside, outside), stderr=subprocess.DEVNULL)
        os.close(inside), os.close(outside)
        self.answers = os.fdopen(back, "rb")
        self.calls = 0
        page = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]

    session = None

    def call(self, method, **parameters):
        self.calls += 1
        message = {"id": self.calls, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = bytearray()
            while (octet := self.answers.read(1)) != b"\0":
                if not octet:
                    sys.exit("the browser has exited")
                answer += octet
            answer = json.loads(answer)
            if answer.get("id") == self.calls:
                return answer["result"]


def main():
    if len(sys.argv) not in (6, 7):
        sys.exit(__doc__)
    url, file, width, height, seconds = sys.argv[1:6]
    scheme = "dark" if sys.argv[6:] == ["dark"] else "light"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(profile)
        size = {"width": int(width), "height": int(height), "deviceScaleFactor": 1, "mobile": False}
        browser.call("Emulation.setDeviceMetricsOverride", **size)
        browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        browser.call("Page.navigate", url=url)
        time.sleep(float(seconds))
        picture = browser.call("Page.captureScreenshot", format="png")["data"]
        with open(file, "wb") as out:
            out.write(base64.b64decode(picture))
        browser.process.terminate()
        browser.process.wait()


main()
