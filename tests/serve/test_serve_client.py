"""The client: what it sends, what it raises, and that it tries again."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from served import in_thread
from undertow import InvalidInputError, OutOfTurnError, StoreUnavailableError, UndertowError, UnknownDecisionError
from undertow.serve import AsyncClient, Client, application


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with in_thread(application(f"sqlite:///{tmp_path_factory.mktemp('client')}/a.db")) as url:
        yield url


def test_a_round(url: str) -> None:
    with Client(url) as client:
        for _ in range(2):
            made = client.create("round", "linucb", ["bike", "van"], feature_dim=2, context_dim=1)
            assert (made.name, made.arms) == ("round", ["bike", "van"])
        decision = client.decide("round", np.array([3.0, 1.0]), id="order/7 ä")
        assert client.decide("round", [3.0, 1.0], id="order/7 ä") == decision
        assert client.reward("round", decision, 0.7).pending == 0
        assert client.observe("round", decision.round, [np.nan]).contexts_seen == 1
        other = client.decide("round", [3, 1], available=["van"], elapsed=3)
        assert (other.arm, other.round) == ("van", 3)
        assert client.reward("round", other.id, 1, context=[0.5]).pending == 0
        assert client.look_up("round", "order/7 ä").reward == 0.7
        assert client.state("round").contexts_seen == 4


def test_a_person_on_call(url: str) -> None:
    with Client(url) as client:
        client.create("call", "linucb", ["bike", "van"], feature_names=["weight"], context_names=["rain"])
        assert client.pin("call", "van").pinned == "van"
        decision = client.decide("call", {"weight": 3})
        assert (decision.arm, decision.propensity) == ("van", 1.0)
        client.observe("call", decision.round, {"rain": 0.5})
        assert client.unpin("call", "van").pinned is None
        assert client.set_costs("call", {"van": 100}).costs == {"bike": 0, "van": 100}
        assert client.decide("call", {"weight": 3}).arm == "bike"


def test_features_of_each_arm(url: str) -> None:
    with Client(url) as client:
        client.create("each", "linucb", ["bike", "van"], feature_dim=2)
        one = client.decide("each", [[1.0, 2.0], [3.0, 4.0]], id="1")
        assert client.decide("each", np.array([[1.0, 2.0], [3.0, 4.0]]), id="1") == one


def test_refusals_are_those_of_a_policy(url: str) -> None:
    with Client(url) as client:
        client.create("refuses", "linucb", ["bike", "van"], context_dim=1)
        with pytest.raises(InvalidInputError, match="there is no bandit 'nobody'"):
            client.decide("nobody")
        with pytest.raises(InvalidInputError, match="is linucb, not ucb"):
            client.create("refuses", "ucb", ["bike", "van"])
        with pytest.raises(InvalidInputError, match="features: expected None"):
            client.decide("refuses", [1.0])
        client.decide("refuses", id="1")
        with pytest.raises(OutOfTurnError, match="the context of this round is due"):
            client.decide("refuses")
        client.reward("refuses", "1", 1.0)
        with pytest.raises(UnknownDecisionError, match="cannot be changed") as refused:
            client.reward("refuses", "1", 2.0)
        assert refused.value.reason == "repeated"


def test_asynchronous_programs(url: str) -> None:
    async def orders() -> int:
        async with AsyncClient(url) as client:
            await client.create("async", "linucb", ["bike", "van"], feature_dim=1)

            async def order(number: int) -> None:
                decision = await client.decide("async", [number], id=str(number))
                await client.reward("async", decision, number % 3)

            await asyncio.gather(*map(order, range(40)))
            with pytest.raises(OutOfTurnError):
                await client.observe("async", 3, None)
            assert (await client.look_up("async", "39")).reward == 0
            return (await client.state("async")).round

    assert asyncio.run(orders()) == 40


def test_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDERTOW_TOKENS", "admin " + "a" * 20 + ", read " + "b" * 20)
    with in_thread(application(f"sqlite:///{tmp_path}/a.db")) as url:
        with Client(url) as client, pytest.raises(UndertowError, match="401 Unauthorized: token: expected the header"):
            client.create("a", "ucb", ["a", "b"])
        with Client(url, token="b" * 20) as client, pytest.raises(UndertowError, match="403 Forbidden"):
            client.create("a", "ucb", ["a", "b"])
        monkeypatch.setenv("UNDERTOW_TOKEN", "a" * 20)
        with Client(url) as client:
            assert client.create("a", "ucb", ["a", "b"]).policy == "ucb"


def received(connection: socket.socket) -> bytes:
    """Return a request, whose body may come after its head."""
    content = b""
    while not content.endswith(b"}"):
        content += connection.recv(4096)
    return content


def test_calls_are_repeated_until_they_are_answered(tmp_path: Path) -> None:
    """The service comes late, and hangs up on the first calls after it has done what they say."""
    with socket.create_server(("127.0.0.1", 0)) as place:
        port = place.getsockname()[1]
        hung_up = []

        def hang_up() -> None:
            for _ in range(2):
                connection, _ = place.accept()
                hung_up.append(received(connection))
                connection.close()
            connection, _ = place.accept()
            received(connection)
            body = b'{"type":"","title":"","status":503,"detail":"not yet"}'
            connection.sendall(b"HTTP/1.1 503 Busy\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
            connection.close()
            connection, _ = place.accept()
            hung_up.append(received(connection))
            body = b'{"id":"1","reward":1.0,"pending":0}'
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
            connection.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        with Client(f"http://127.0.0.1:{port}") as client:
            assert client.reward("a", "1", 1.0).pending == 0
        thread.join(10)
    assert len(hung_up) == 3
    assert len({request.rpartition(b"\r\n")[2] for request in hung_up}) == 1


def test_patience_ends(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as place:
        address = f"http://127.0.0.1:{place.getsockname()[1]}"
    began = time.monotonic()
    with (
        Client(address, patience=0.5) as client,
        pytest.raises(StoreUnavailableError, match="PUT /v1/bandits/a/decisions/1/reward was not answered") as refused,
    ):
        client.reward("a", "1", 1.0)
    assert refused.value.happened is None
    assert 0.5 <= time.monotonic() - began < 4.0

    async def ask() -> None:
        async with AsyncClient(address, patience=0.2) as client:
            await client.state("a")

    with pytest.raises(StoreUnavailableError, match="was not answered"):
        asyncio.run(ask())


def test_without_an_id_a_repeated_call_is_the_same_decision(url: str) -> None:
    with Client(url) as client:
        client.create("ids", "ucb", ["a", "b"])
        ids = [client.decide("ids").id for _ in range(3)]
    assert len(set(ids)) == 3
    assert all(len(id) == 32 for id in ids)
