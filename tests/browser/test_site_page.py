"""The documentation as a site in Chromium: accessible in light and dark, without requests to other machines; `make test-site`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.paths import ROOT
from support.studio_page import AXE, serious_violations

pytestmark = pytest.mark.browser
HTML = ROOT / "build" / "site" / "html"
PAGES = [path.name for path in sorted(HTML.glob("*.html")) if path.name != "404.html"] or ["index.html"]


@pytest.fixture(autouse=True)
def built() -> None:
    if not (HTML / "index.html").exists() or not AXE.exists():
        pytest.skip("the site or axe-core is not here: make test-site")


def _open(browser: Any, page: Path, scheme: str) -> None:
    browser.driver.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    browser.open(page)
    browser.script("localStorage.clear()")  # the theme keeps what it chose before
    browser.open(page)
    browser.wait("document.readyState === 'complete'")


@pytest.mark.parametrize("page", PAGES)
def test_a_page_keeps_nobody_out(browser: Any, page: str) -> None:
    """axe-core finds nothing serious in light or dark, and nothing is asked of another machine."""
    for scheme, name in (("light", "default"), ("dark", "slate")):
        _open(browser, HTML / page, scheme)
        assert browser.script("return document.body.dataset.mdColorScheme") == name
        assert serious_violations(browser) == [], f"{page}, {scheme}"
        asked, _ = browser.seen()
        assert [address for address in asked if not address.startswith(("file:", "data:", "blob:"))] == []


def test_search_works_offline(browser: Any) -> None:
    _open(browser, HTML / "index.html", "light")
    browser.script(
        "const field = document.querySelector('.md-search__input'); field.focus(); field.value = 'requantization';"
        "field.dispatchEvent(new Event('input', {bubbles: true})); field.dispatchEvent(new Event('keyup', {bubbles: true}))"
    )
    browser.wait("document.querySelectorAll('.md-search-result__item').length > 0")
    assert any(
        "arithmetic" in link
        for link in browser.script(
            "return [...document.querySelectorAll('.md-search-result__link')].map(link => link.href)"
        )
    )
