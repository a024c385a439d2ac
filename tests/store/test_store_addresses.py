"""Where stores are: addresses and their passwords, poolers, network file systems, programs that use asyncio."""

import asyncio
import logging
import threading
import traceback
from pathlib import Path

import numpy as np
import pytest

import services
import undertow
from undertow import InvalidInputError, StoreUnavailableError
from undertow.contracts import check_store
from undertow.store import DurablePolicy
from undertow.store.address import store_at
from undertow.store.sqlite import SqliteStore, _file_system


def ucb() -> undertow.UCB:
    return undertow.UCB(arms=2, rng=0)


# Passwords


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://shop:se@cret@127.0.0.1:1/db",
        "postgresql://shop:se/cret@127.0.0.1:1/db",
        "postgresql://shop:se?cret@127.0.0.1:1/db",
        "postgresql://shop:se:cret@127.0.0.1:1/db",
        "postgresql://shop:%zzcret@127.0.0.1:1/db",
        "postgresql://shop:secret@127.0.0.1:port/db",
        "postgresql://shop:secret@127.0.0.1:1/db",
        "postgresql://127.0.0.1:1/db?user=shop&password=secret",
        "postgresql://shop:secret@127.0.0.1:1/db?nonsense=secret",
        "mysql://shop:secret@host/db",
        "shop:secret@host/db",
    ],
)
def test_no_error_shows_a_password(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Neither its message nor its traceback, up to the code that was given the address."""
    with caplog.at_level(logging.DEBUG), pytest.raises((InvalidInputError, StoreUnavailableError)) as caught:
        undertow.open(url, "courier", ucb())
    shown = "".join(traceback.format_exception(caught.value)).replace("undertow.open(url", "") + caplog.text
    assert "cret" not in shown
    assert "shop" not in str(caught.value)


def test_no_store_shows_its_password(postgres: services.Postgres) -> None:
    store = store_at(postgres.url)
    password = postgres.url.split(":")[2].split("@")[0]
    policy = undertow.open(store, "addresses", ucb())
    assert password not in repr(store) + repr(policy) + str(store)
    assert repr(store) == f"PostgresStore('{postgres.url.split('@')[1]}')"
    with pytest.raises(StoreUnavailableError) as caught:
        store_at(postgres.url.replace(password, "wrong"))
    assert "wrong" not in "".join(traceback.format_exception(caught.value)).replace('"wrong"', "")


# A pooler


def test_a_store_behind_pgbouncer(pgbouncer: str) -> None:
    """Every transaction gets another session, and nothing of an earlier one."""
    assert check_store(lambda: store_at(pgbouncer))
    holders = [undertow.open(pgbouncer, "pooled", ucb(), timeout=60) for _ in range(4)]
    errors: list[Exception] = []

    def work(policy: DurablePolicy) -> None:
        try:
            for _ in range(15):
                policy.learn(policy.decide(), 1.0)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(policy,)) for policy in holders * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert [policy.round for policy in holders] == [120] * 4


# Network file systems

MOUNTS = """
proc /proc proc rw 0 0
/dev/sda1 / ext4 rw 0 0
server:/export /mnt/shared nfs4 rw 0 0
//server/share /mnt/my\\040share cifs rw 0 0
/dev/sdb1 /mnt/shared/local xfs rw 0 0
overlay /over ext4 rw 0 0
server:/other /over nfs rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/a.db", "ext4"),
        ("/mnt/shared/a.db", "nfs4"),
        ("/mnt/my share/deep/a.db", "cifs"),
        ("/mnt/shared/local/a.db", "xfs"),
        ("/mnt/sharedlike/a.db", "ext4"),
        ("/over/a.db", "nfs"),
    ],
)
def test_the_file_system_of_a_path(tmp_path: Path, path: str, kind: str) -> None:
    (tmp_path / "mounts").write_text(MOUNTS.lstrip())
    assert _file_system(Path(path), tmp_path / "mounts") == kind
    assert _file_system(Path(path), tmp_path / "nothing") == ""


def test_a_network_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also behind a symbolic link."""
    (tmp_path / "far").mkdir()
    (tmp_path / "near").symlink_to(tmp_path / "far")
    (tmp_path / "mounts").write_text(f"/dev/sda1 / ext4 rw 0 0\nserver:/a {tmp_path}/far nfs4 rw 0 0\n")
    monkeypatch.setattr(_file_system, "__defaults__", (tmp_path / "mounts",))
    for folder in ("far", "near"):
        with pytest.raises(InvalidInputError, match=r"is on a network file system \(nfs4\), .* or PostgreSQL"):
            SqliteStore(tmp_path / folder / "a.db")
    assert SqliteStore(tmp_path / "a.db").names() == []


# asyncio


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_async_programs_call_on_threads(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """As docs/production.md says; meanwhile the loop goes on."""
    server = request.getfixturevalue("postgres").url if kind == "postgres" else ""
    policy = undertow.open(server or f"sqlite:///{tmp_path}/shop.db", f"async {tmp_path.name}", ucb(), timeout=60)
    turns = 0

    async def tick() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def order(number: int) -> int:
        decision = await asyncio.to_thread(policy.decide, id=f"order {number}")
        await asyncio.to_thread(policy.learn, decision, float(number))
        return decision.round

    async def run() -> list[int]:
        ticking = asyncio.create_task(tick())
        rounds = await asyncio.gather(*map(order, range(40)))
        ticking.cancel()
        return rounds

    assert sorted(asyncio.run(run())) == list(range(40))
    assert turns > 40
    assert (policy.round, policy.pending) == (40, 0)
    assert np.isfinite(policy.forecast().forecast).all()
