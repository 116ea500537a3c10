"""Write docs/page.png: the page of `pixprep serve --page` in Chromium with a demo photo, reduced to 256 colours.

PYTHONPATH=tests .venv/bin/python tools/page_picture.py
"""

import io
import tempfile
from pathlib import Path

from PIL import Image

from pixprep.serving.embedded.server import Server
from pixprep.serving.page.process import Page
from pixprep.serving.repository import build
from serving.server.browser import Browser

ROOT = Path(__file__).parent.parent
PHOTO = ROOT / "client_examples" / "images" / "china.jpg"
PICTURE = ROOT / "docs" / "page.png"
WARM_UPS = 5


def drawn() -> Image.Image:
    """Return the picture before its colours are reduced."""
    with tempfile.TemporaryDirectory() as folder, Page() as page:
        build(Path(folder, "models"))
        with Server(Path(folder, "models")) as server, Browser(height=800, width=1200) as browser:
            page.start(server)
            browser.prefer("light")
            browser.open(page.url)
            browser.wait("document.querySelector('#model').options.length")
            for _ in range(WARM_UPS):
                browser.choose("#files", PHOTO)
                browser.wait("document.querySelector('#status').innerText")
                browser.wait("!document.querySelector('#status').innerText")
            browser.wait("[...document.images].every(image => image.complete || !image.offsetWidth)")
            return Image.open(io.BytesIO(browser.screenshot())).convert("RGB")


if __name__ == "__main__":
    drawn().quantize(256, dither=Image.Dither.NONE).save(PICTURE, optimize=True)
