"""What tests of the studio's page share: into it, from view to view, and what must never be seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from npuc.errors import MissingExtraError
from npuc.studio.page import library_text

AXE = Path(__file__).resolve().parents[2] / "npm" / "node_modules" / "axe-core" / "axe.min.js"


@pytest.fixture(autouse=True)
def built() -> None:
    """The libraries of the page come from npm."""
    try:
        library_text()
    except MissingExtraError:
        pytest.skip("the page of the studio is not built: make test-studio")


def enter(browser: Any, client: Any, start: str = "") -> None:
    """Open the studio by its token."""
    browser.go(f"http://127.0.0.1:{client.port}/?token={client.token}{'#' + start if start else ''}")
    browser.wait("document.getElementById('view') && document.getElementById('view').dataset.ready")


def tab(browser: Any, name: str) -> None:
    """Go to a view."""
    browser.click(f"#tab-{name}")
    browser.wait(f"document.getElementById('view').dataset.ready === '{name}'")


def silent(browser: Any) -> None:
    """Nothing was asked of another machine, and the console has no complaint."""
    asked, said = browser.seen()
    assert said == [] and asked == []


def serious_violations(browser: Any) -> list[Any]:
    """What axe-core finds that keeps people out."""
    browser.driver.execute_script(AXE.read_text())
    result = browser.driver.execute_async_script(
        "const done = arguments[arguments.length - 1]; axe.run().then(result => done(result.violations))"
    )
    return [
        (rule["id"], [node["html"][:120] for node in rule["nodes"][:3]])
        for rule in result
        if rule["impact"] in ("serious", "critical")
    ]
