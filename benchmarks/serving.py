"""The service: pairs of decide and reward over HTTP, against a bare handler that inserts the same rows.

Clients are threads of this process, each with a connection that stays open. A server is its own process, and each of
1,000 bandits is asked in turn. The bare one is a Starlette application of two handlers that decode the same JSON,
insert rows of the same size in the same transactions, grouped over its threads as ours are, and answer with as many
bytes. Both are measured by turns, on SQLite in out/bench. Then: what 10^5 bandits cost a worker that nobody asks for
them, and how long a page of them takes. Written to out/bench/serving.json.
"""

import argparse
import functools
import http.client
import itertools
import json
import os
import secrets
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import msgspec
import numpy as np
import psutil
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import undertow
from benchmarks.report import OUT, Report
from benchmarks.stores import Inserts
from undertow.serve.protocol import Deadline
from undertow.serve.run import Plan, listen, run
from undertow.store.address import store_at

CLIENTS = (1, 8, 64)
BANDITS = 1000
SECONDS = 3.0
TURNS = 3
ANSWER = b'{"id":"%s","padding":"' + b"x" * 230 + b'"}'


class _Id(msgspec.Struct):
    id: str = ""
    features: list[float] = []
    reward: float = 0.0


def bare(url: str) -> Starlette:
    """Return an application that only inserts the same rows as ours."""
    store = store_at(url)
    guard, opened = threading.Lock(), dict[str, Inserts]()
    decoder = msgspec.json.Decoder(_Id)

    def bandit(name: str) -> Inserts:
        with guard:
            if name not in opened:
                opened[name] = Inserts(store, name)
            return opened[name]

    def decided(name: str, body: _Id) -> bytes:
        return ANSWER % bandit(name).decide(body.id).encode()

    async def decide(request: Request) -> Response:
        content = await run_in_thread(decided, request.path_params["name"], decoder.decode(await request.body()))
        return Response(content, 201, media_type="application/json")

    async def reward(request: Request) -> Response:
        decoder.decode(await request.body())
        await run_in_thread(bandit(request.path_params["name"]).learn, request.path_params["id"])
        return Response(b'{"id":"x","reward":1.0,"pending":0}', media_type="application/json")

    return Starlette(
        routes=[
            Route("/v1/bandits/{name}/decisions", decide, methods=["POST"]),
            Route("/v1/bandits/{name}/decisions/{id}/reward", reward, methods=["PUT"]),
        ]
    )


async def run_in_thread(call: Any, *given: Any) -> Any:
    """Call a function in one of as many threads as ours has."""
    return await anyio.to_thread.run_sync(partial(call, *given), limiter=_limiter())


@functools.cache
def _limiter() -> anyio.CapacityLimiter:
    return anyio.CapacityLimiter(80)


@contextmanager
def served(kind: str, url: str) -> Iterator[tuple[int, int]]:
    """Run a server in its own process; yield its port and its process."""
    command = [sys.executable, "-m", "benchmarks.serving", kind, url]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline()), process.pid
    finally:
        process.terminate()
        process.wait(60)


def serve(kind: str, url: str) -> None:
    """Be a server."""
    plan = Plan(url, port=0, access_log=False)
    bound = listen(plan)
    print(bound.getsockname()[1], flush=True)
    if kind == "ours":
        run(plan, bound)
    else:
        config = uvicorn.Config(bare(url), http=Deadline, ws="none", access_log=False, log_level="error")
        uvicorn.Server(config).run(sockets=[bound])


def pairs(port: int, clients: int, names: list[str]) -> tuple[float, list[float]]:
    """Return the pairs per second of some clients, and the duration of each."""
    until, taken, turn = time.perf_counter() + SECONDS, list[float](), itertools.count()
    headers = {"content-type": "application/json"}

    def work() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        while (start := time.perf_counter()) < until:
            name, id = names[next(turn) % len(names)], secrets.token_hex(8)
            path = f"/v1/bandits/{name}/decisions"
            for method, place, body, status in (
                ("POST", path, {"id": id, "features": [0.3, 1.0, -0.5]}, 201),
                ("PUT", f"{path}/{id}/reward", {"reward": 1.0}, 200),
            ):
                connection.request(method, place, json.dumps(body), headers)
                answer = connection.getresponse()
                answer.read()
                assert answer.status == status, answer.status
            taken.append(time.perf_counter() - start)

    threads = [threading.Thread(target=work) for _ in range(clients)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(taken) / (time.perf_counter() - start), taken


def created(path: Path, prefix: str, count: int) -> list[str]:
    """Create many bandits, as copies of one."""
    store = store_at(f"sqlite:///{path}")
    names = [f"{prefix}{n}" for n in range(count)]
    undertow.open(store, names[0], undertow.LinUCB(arms=5, feature_dim=3))
    store.close()
    with sqlite3.connect(path) as connection:
        row = connection.execute("SELECT * FROM bandits WHERE name = ?", (names[0],)).fetchone()
        number, first = row[0], connection.execute("SELECT max(number) FROM bandits").fetchone()[0] + 1
        assert row[1] == names[0]
        rows = [(first + n, name, *row[2:]) for n, name in enumerate(names[1:])]
        connection.executemany(f"INSERT INTO bandits VALUES ({', '.join('?' * len(row))})", rows)
        kept = connection.execute("SELECT n, content FROM checkpoints WHERE bandit = ?", (number,)).fetchall()
        connection.executemany("INSERT INTO times (bandit) VALUES (?)", [(copied,) for copied, *_ in rows])
        copies = ((copied, *each) for copied, *_ in rows for each in kept)
        connection.executemany("INSERT INTO checkpoints VALUES (?, ?, ?)", copies)
    return names


def load(report: Report) -> None:
    """Measure pairs over HTTP, ours and bare by turns."""
    path = OUT / "serving.db"
    for file in OUT.glob("serving.db*"):
        file.unlink()
    url = f"sqlite:///{path}"
    names = {kind: created(path, f"{kind}-", BANDITS) for kind in ("ours", "bare")}
    rows: dict[str, list[str]] = {}
    with served("ours", url) as (ours, _), served("bare", url) as (plain, _):
        ports = {"ours": ours, "bare": plain}
        for name in names["ours"]:  # it is opened
            assert _get(ours, f"/v1/bandits/{name}")[0] == 200
        for kind, port in ports.items():
            pairs(port, 8, names[kind])
        for clients in CLIENTS:
            found: dict[str, list[tuple[float, list[float]]]] = {"ours": [], "bare": []}
            for _ in range(TURNS):
                for kind, port in ports.items():
                    found[kind].append(pairs(port, clients, names[kind]))
            rate, taken = max(found["ours"])
            ratio = float(
                np.median([one / other for (one, _), (other, _) in zip(found["ours"], found["bare"], strict=True)])
            )
            p50, p99 = np.quantile(taken, [0.5, 0.99])
            other = max(rate for rate, _ in found["bare"])
            rows[f"{clients} clients"] = [
                f"{rate:,.0f}",
                f"{1e3 * p50:.1f}",
                f"{1e3 * p99:.1f}",
                f"{other:,.0f}",
                f"{ratio:.2f} ×",
            ]
    columns = ["pairs per second", "median, ms", "99 %, ms", "bare handler, pairs per second", "ratio"]
    report.grid(f"decide and reward over HTTP, LinUCB, {BANDITS} bandits, one worker, SQLite", columns, rows)
    report.target("lowest ratio to a bare handler", min(float(row[-1].split()[0]) for row in rows.values()), least=0.6)


def idle(report: Report) -> None:
    """Measure the cost of idle bandits to a worker, and the page's lists."""
    found: dict[int, tuple[float, float, float]] = {}
    for count in (10, 100_000):
        path = OUT / f"idle-{count}.db"
        for file in OUT.glob(f"idle-{count}.db*"):
            file.unlink()
        created(path, "shop-", count)
        start = time.perf_counter()
        with served("ours", f"sqlite:///{path}") as (port, pid):
            while _get(port, "/readyz")[0] != 200:
                time.sleep(0.01)
            started = time.perf_counter() - start
            size = psutil.Process(pid).memory_info().rss
            start = time.perf_counter()
            assert _get(port, "/v1/bandits?most=100")[1].count(b"linucb") == min(count, 100)
            found[count] = started, size, time.perf_counter() - start
    (few, small, _), (many, large, listed) = found[10], found[100_000]
    report.grid(
        "100,000 bandits that nobody asks for, beside 10",
        ["start until ready, s", "memory, MB", "a page of 100, ms"],
        {f"{n:,} bandits": [f"{a:.2f}", f"{b / 1e6:.1f}", f"{1e3 * c:.1f}"] for n, (a, b, c) in found.items()},
    )
    report.target("bytes of a worker for each", (large - small) / 1e5, most=1000)
    report.target("start with many, times that with few", many / few, most=1.5)
    report.note(f"a page of 100 of them takes {1e3 * listed:.1f} ms")


def _get(port: int, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, content


def main() -> None:
    """Measure everything."""
    OUT.mkdir(parents=True, exist_ok=True)
    report = Report()
    load(report)
    idle(report)
    report.save(OUT / "serving.json")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", nargs="?", choices=["ours", "bare"])
    parser.add_argument("url", nargs="?")
    chosen = parser.parse_args()
    if chosen.kind:
        os.environ.pop("UNDERTOW_TOKENS", None)
        serve(chosen.kind, chosen.url)
    else:
        main()
