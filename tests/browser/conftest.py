"""Fixtures of the browser tests: servers on free ports, one Chromium, pages that fail the test when they complain."""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.browser.driver import WAIT_MS, Tab, launch, open_tab
from tests.browser.server import Server
from tests.chromium import find_chromium

LOG = pytest.StashKey[list[Server]]()
# A wait ends with what it waits for: a patient one costs a fast machine nothing and spares a slow one.
expect.set_options(timeout=WAIT_MS)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark this folder's tests, put them last, and skip them where there is no browser to run them in, except in CI.

    Last, because Playwright keeps an event loop running in this thread, and ``asyncio.run`` refuses to start beside it.
    Each may fail twice: on a machine with other work to do a pointer can lose a race against a page that is still
    settling. The closing summary names every test that needed another try.
    """
    own = [item for item in items if Path(__file__).parent in item.path.parents]
    items[:] = [item for item in items if item not in own] + own
    for item in own:
        item.add_marker(pytest.mark.browser)
        item.add_marker(pytest.mark.flaky(reruns=2, reruns_delay=1))
    if own and not os.environ.get("CI") and find_chromium() is None:
        for item in own:
            item.add_marker(pytest.mark.skip(reason="no Chromium; `python tests/run.py` installs one"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Add the logs of the servers a failed test used to its report."""
    report = yield
    if report.failed:
        for server in item.stash.get(LOG, []):
            report.sections.append((f"log of {server.url}", server.log[-4000:]))
    return report


@pytest.fixture(scope="session")
def _servers() -> Iterator[dict[Any, Server]]:
    servers: dict[Any, Server] = {}
    yield servers
    for server in servers.values():
        server.stop()


@pytest.fixture
def serve(request: pytest.FixtureRequest, _servers: dict[Any, Server]) -> Callable[..., str]:
    """Give ``serve(script, env=None) -> url``: a running server, shared by all tests that ask for the same."""

    def start(script: str = "app.py", env: Mapping[str, str] | None = None) -> str:
        key = (script, tuple(sorted((env or {}).items())))
        if key not in _servers:
            _servers[key] = Server(script, env)
        request.node.stash.setdefault(LOG, []).append(_servers[key])
        return _servers[key].url

    return start


@pytest.fixture
def fresh_server(request: pytest.FixtureRequest) -> Iterator[Callable[..., str]]:
    """Give ``fresh_server(script="app.py", env=None) -> url``: a server no one has visited, ended with the test."""
    started: list[Server] = []

    def start(script: str = "app.py", env: Mapping[str, str] | None = None) -> str:
        started.append(Server(script, env))
        request.node.stash.setdefault(LOG, []).append(started[-1])
        return started[-1].url

    yield start
    for server in started:
        server.stop()


@pytest.fixture
def app_url(serve: Callable[..., str]) -> str:
    """Give the address of the real app."""
    return serve("app.py")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Give one Chromium for the whole run."""
    with sync_playwright() as playwright:
        chromium = launch(playwright)
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Give ``open_page(url, *, locale, color_scheme, viewport, allow, touch, wait) -> Page`` (see ``open_tab``).

    Each call is a new visitor. At the end the test fails on any console error, page error or request to another machine
    that is not in ``allow``.
    """
    tabs: list[Tab] = []

    def start(url: str, **options: Any) -> Page:
        tabs.append(open_tab(browser, url, **options))
        return tabs[-1].page

    yield start
    for tab in tabs:
        tab.context.close()
    problems = [problem for tab in tabs for problem in tab.problems]
    assert not problems, "\n".join(problems)
