"""A headless Chromium that tells of every request and every complaint of a page."""

from __future__ import annotations

import base64
import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.studio_server import client, project_folder, studio_files

__all__ = ["browser", "client", "project_folder", "studio_files"]
ARTIFACTS = Path(__file__).resolve().parents[2] / "build" / "artifacts"
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-quic", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--hide-scrollbars", "--force-device-scale-factor=1", "--window-size=1440,1000",
)  # fmt: skip


@dataclass(frozen=True)
class Browser:
    """A browser under test."""

    driver: Any

    def open(self, page: Path) -> None:
        """Open a file, and forget what was seen before."""
        self.go(page.as_uri())

    def go(self, address: str) -> None:
        """Open an address, and forget what was seen before."""
        self.driver.get("about:blank")
        self.seen()
        self.driver.get(address)

    def wait(self, condition: str, seconds: float = 30.0) -> None:
        """Wait until an expression of the page is true."""
        deadline = time.monotonic() + seconds
        while not self.script(f"return Boolean({condition})"):
            assert time.monotonic() < deadline, f"{condition}; console: {self.driver.get_log('browser')}"
            time.sleep(0.05)

    def choose(self, selector: str, value: str) -> None:
        """Choose an entry of a list."""
        self.script(
            "const list = document.querySelector(arguments[0]); list.value = arguments[1];"
            "list.dispatchEvent(new Event('change', {bubbles: true}));",
            selector,
            value,
        )

    def script(self, text: str, *arguments: Any) -> Any:
        """Run a script in the page."""
        return self.driver.execute_script(text, *arguments)

    def texts(self, selector: str) -> list[str]:
        """The text of every element that a selector finds."""
        found: list[str] = self.script(
            "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)", selector
        )
        return found

    def hover(self, selector: str, x: float, y: float) -> None:
        """Move the pointer to a point of an element, from its upper left corner."""
        from selenium.webdriver import ActionChains
        from selenium.webdriver.common.by import By

        element = self.driver.find_element(By.CSS_SELECTOR, selector)
        self.script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", element)
        box = element.rect
        ActionChains(self.driver).move_to_element_with_offset(
            element, round(x - box["width"] / 2), round(y - box["height"] / 2)
        ).perform()

    def click(self, selector: str) -> None:
        """Click an element."""
        from selenium.webdriver.common.by import By

        element = self.driver.find_element(By.CSS_SELECTOR, selector)
        self.script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", element)
        element.click()

    def seen(self) -> tuple[list[str], list[str]]:
        """The addresses that pages from disk asked for, and what the console says, since the last call."""
        asked = []
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if (
                message["method"] == "Network.requestWillBeSent"
                and message["params"]["documentURL"][:5] == "file:"
            ):
                asked.append(message["params"]["request"]["url"])
        return asked, [entry["message"] for entry in self.driver.get_log("browser")]

    def screenshot(self, name: str, *, whole: bool = False) -> Path:
        """Keep a picture of what is in sight, or of the whole page."""
        ARTIFACTS.mkdir(parents=True, exist_ok=True)
        taken = self.driver.execute_cdp_cmd(
            "Page.captureScreenshot", {"format": "png", "captureBeyondViewport": whole}
        )
        path = ARTIFACTS / name
        path.write_bytes(base64.b64decode(taken["data"]))
        return path


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Chromium; `make test-browser` installs it and what drives it."""
    webdriver = pytest.importorskip(
        "selenium.webdriver", reason="selenium is not installed: make test-browser"
    )
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("chromium and chromedriver are not installed: make test-browser")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    made = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=driver))
    try:
        yield Browser(made)
    finally:
        made.quit()
