"""The servers that tests start are real: a database that keeps what was committed, a browser that draws a page."""

import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import psycopg
import pytest

import services


def test_the_database_keeps_what_was_committed(postgres: services.Postgres) -> None:
    with psycopg.connect(postgres.url) as connection:
        connection.execute("CREATE TABLE kept (n int)")
        connection.execute("INSERT INTO kept VALUES (7)")
    postgres.stop(kill=True)
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(postgres.url)
    postgres.start()
    with psycopg.connect(postgres.url) as connection:
        assert connection.execute("SELECT n FROM kept").fetchall() == [(7,)]
        connection.execute("DROP TABLE kept")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "page.html").write_text(
        "<title>drift</title><body style='background: #123456; color: white'><h1>undertow</h1>"
    )
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/page.html"
        server.shutdown()
        thread.join()


def test_the_browser_draws_a_page(browser: Any, site: str, tmp_path: Path) -> None:
    page = browser.new_page(viewport={"width": 320, "height": 200})
    page.goto(site)
    assert page.title() == "drift"
    page.screenshot(path=tmp_path / "page.png")
    page.close()
    picture = np.round(255 * matplotlib.image.imread(tmp_path / "page.png")[..., :3])
    np.testing.assert_array_equal(picture[-1, -1], [0x12, 0x34, 0x56])
    assert np.ptp(picture) > 100  # letters on it


def test_a_missing_service_skips_or_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UNDERTOW_SERVICES", raising=False)
    with pytest.raises(pytest.skip.Exception, match="`make services` installs it"):
        services.missing("PostgreSQL")
    monkeypatch.setenv("UNDERTOW_SERVICES", "required")
    with pytest.raises(pytest.fail.Exception, match="PostgreSQL is missing"):
        services.missing("PostgreSQL")
