"""Chromium without a window, on a page from disk."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from tests.flows.processes import PATIENCE_SECONDS

_OPTIONS = (
    "headless=new", "no-sandbox", "disable-gpu", "disable-quic", "disable-dev-shm-usage",
    "no-first-run", "disable-background-networking", "disable-component-update", "disable-sync",
    "window-size=1280,900",
)  # fmt: skip


class Page:
    """An open page; what it saves appears in ``downloads``."""

    def __init__(self, driver: webdriver.Chrome, downloads: Path) -> None:
        self.driver = driver
        self.downloads = downloads

    def open(self, path: Path) -> None:
        self.driver.get("about:blank")
        for log in ("browser", "performance"):
            self.driver.get_log(log)
        self.driver.get(path.as_uri())
        self.wait(lambda: self.run("return document.documentElement.dataset.ready") == "figures")

    def run(self, script: str, *arguments: object) -> Any:
        return self.driver.execute_script(script, *arguments)

    def wait(self, condition: Callable[[], object]) -> None:
        waiting = WebDriverWait(self.driver, PATIENCE_SECONDS, poll_frequency=0.1)
        waiting.until(lambda _: condition())

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def emulate(self, scheme: str = "light", width: int = 1280) -> None:
        """The reader's colour scheme and the width of the window."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        self.wait(lambda: self.run("return innerWidth") == width)

    def messages(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requested(self) -> set[str]:
        log = self.driver.get_log("performance")
        events = [json.loads(entry["message"])["message"] for entry in log]
        sent = [event for event in events if event["method"] == "Network.requestWillBeSent"]
        return {event["params"]["request"]["url"] for event in sent}

    def saved(self, name: str) -> str:
        path = self.downloads / name
        # Chromium puts an empty file in its place first.
        self.wait(lambda: path.is_file() and path.stat().st_size)
        text = path.read_text()
        path.unlink()
        return text


@contextmanager
def chromium(folder: Path) -> Iterator[Page]:
    """A browser with a profile of its own in ``folder``; skips the test where none is installed."""
    programs = shutil.which("chromium"), shutil.which("chromedriver")
    if None in programs:
        pytest.skip("Chromium is not installed: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = str(programs[0])
    for option in (*_OPTIONS, f"user-data-dir={folder / 'profile'}"):
        options.add_argument(f"--{option}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    downloads = folder / "downloads"
    downloads.mkdir()
    driver = webdriver.Chrome(options, webdriver.ChromeService(programs[1]))
    try:
        driver.set_page_load_timeout(PATIENCE_SECONDS)
        behaviour = {"behavior": "allow", "downloadPath": str(downloads)}
        driver.execute_cdp_cmd("Browser.setDownloadBehavior", behaviour)
        yield Page(driver, downloads)
    finally:
        driver.quit()
