"""An address is taken before it is listened on: nobody else can have it, and no client is kept waiting there."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from openclaw_rl.errors import ConfigError
from openclaw_rl.home.address import BoundAddress, taken
from openclaw_rl.serve.settings import ServeSettings


def _port(place: BoundAddress) -> int:
    return int(place.sockets[0].getsockname()[1])


async def test_a_place_is_one_servers_alone_before_it_listens_and_after() -> None:
    async with taken(ServeSettings(port=0)) as place:
        again = ServeSettings(port=_port(place))
        with pytest.raises(ConfigError, match=f"cannot listen on .*:{again.port}") as told:
            async with taken(again):
                raise AssertionError("two have it")
        assert "--port" in told.value.fix
        with socket.socket() as client, pytest.raises(ConnectionRefusedError):
            client.connect(("127.0.0.1", again.port))
        for one in place.opened():
            one.listen()
        with socket.socket() as client:
            client.connect(("127.0.0.1", again.port))
        with pytest.raises(ConfigError, match="cannot listen on"):
            async with taken(again):
                raise AssertionError("two have it")


async def test_the_next_server_gets_it_while_connections_of_the_last_are_still_closing() -> None:
    port = 0
    for _ in range(3):
        async with taken(ServeSettings(port=port)) as place:
            port = _port(place)
            (one,) = place.opened()
            one.listen()
            with socket.create_connection(("127.0.0.1", port)) as client:
                answering, _ = one.accept()
                answering.close()  # the server's side closes first, so it is the one that lingers
                assert client.recv(1) == b""


async def test_a_name_of_several_addresses_is_taken_on_each() -> None:
    async with taken(ServeSettings(host="localhost", port=0)) as place:
        assert {one.family for one in place.sockets} <= {socket.AF_INET, socket.AF_INET6}
        assert place.url.startswith("http://") and str(_port(place)) in place.url


@pytest.mark.parametrize("host", ["203.0.113.7", "no-such-host.invalid"])
async def test_an_address_that_is_not_this_machines_is_refused_with_what_to_do(host: str) -> None:
    with pytest.raises(ConfigError, match="cannot listen on"):
        async with taken(ServeSettings(host=host, port=0, plain_public=True)):
            raise AssertionError("it is not ours")


async def test_a_certificate_that_cannot_be_read_is_refused_before_anything_is_taken(tmp_path: Path) -> None:
    settings = ServeSettings(port=0, tls_cert=str(tmp_path / "none.pem"), tls_key=str(tmp_path / "none.key"))
    with pytest.raises(ConfigError, match="cannot be used"):
        async with taken(settings):
            raise AssertionError("there is no certificate")
