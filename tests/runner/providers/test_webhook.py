"""providers.webhook and providers.guard: signature, limits, addresses (faults B77, B110, B113)."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from ipaddress import ip_network
from time import monotonic, time

import httpcore
import pytest
from standardwebhooks import Webhook

from jobrunner.demo.hooks import SECRET, Hooks, answer, hooks
from jobrunner.errors import UsageError
from jobrunner.providers.guard import GuardedBackend, is_allowed
from jobrunner.providers.http import HttpPoster
from jobrunner.providers.webhook import Answer, WebhookSettings, signed

pytestmark = pytest.mark.one_leg("18")

LOOPBACK = (ip_network("127.0.0.0/8"),)


@pytest.fixture
def consumer() -> Iterator[Hooks]:
    with hooks() as consumer:
        yield consumer


def poster(*allowed: str, timeout_seconds: float = 30.0) -> HttpPoster:
    return HttpPoster(WebhookSettings(timeout_seconds, 4, tuple(ip_network(one) for one in allowed)))


def post(url: str, *allowed: str, secret: str = SECRET, timeout_seconds: float = 30.0) -> Answer:
    sender = poster(*allowed, timeout_seconds=timeout_seconds)
    try:
        return sender.post(url, secret, "evt_1", '{"a": "ä"}')
    finally:
        sender.close()


def test_signed_is_what_the_package_of_the_convention_says() -> None:
    content = '{"a": "ä"}'.encode()
    headers = signed("evt_1", int(time()), content, SECRET)
    assert Webhook(SECRET).verify(content, headers) == {"a": "ä"}
    assert (
        signed("evt_1", 1_700_000_000, content, SECRET)["webhook-signature"]
        == signed("evt_1", 1_700_000_000, content, SECRET.removeprefix("whsec_"))["webhook-signature"]
    )


def test_post_delivers_and_keeps_the_connection(consumer: Hooks) -> None:
    sender = poster("127.0.0.0/8")
    assert [sender.post(consumer.url(), SECRET, f"evt_{n}", "{}") for n in range(3)] == [Answer(204, None)] * 3
    sender.close()
    assert consumer.ids() == ["evt_0", "evt_1", "evt_2"]
    assert consumer.received[0].headers["content-type"] == "application/json"


@pytest.mark.parametrize("secret", ["", "whsec_", "not base64!", "whsec_ä"])
def test_post_reports_a_secret_that_is_none(consumer: Hooks, secret: str) -> None:
    result = post(consumer.url(), "127.0.0.0/8", secret=secret)
    assert result.status is None
    assert result.error
    assert consumer.received == []


@pytest.mark.parametrize("status", [300, 301, 302, 303, 307, 308, 400, 404, 410, 429, 500, 503])
def test_post_counts_everything_but_2xx_as_failed(consumer: Hooks, status: int) -> None:
    consumer.answers["/ok"] = answer(status, b"no\x00pe")
    assert post(consumer.url(), "127.0.0.0/8") == Answer(status, f"HTTP {status}: nope")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_b110_post_follows_no_redirect(consumer: Hooks, status: int) -> None:
    with hooks() as canary:
        for target in (canary.url("/canary"), "/canary"):
            consumer.answers["/ok"] = answer(status, location=target)
            assert post(consumer.url(), "127.0.0.0/8").status == status
        assert canary.received == []
    assert consumer.ids("/canary") == []


def test_b110_post_reads_little_of_an_answer(consumer: Hooks) -> None:
    sent = []

    def flood(request: object) -> None:
        request.send_response(500)  # type: ignore[attr-defined]
        request.send_header("content-length", "1000000000")  # type: ignore[attr-defined]
        request.end_headers()  # type: ignore[attr-defined]
        for _ in range(15_000):
            request.wfile.write(b"x" * 65_536)  # type: ignore[attr-defined]
            sent.append(65_536)

    consumer.answers["/ok"] = flood
    result = post(consumer.url(), "127.0.0.0/8")
    assert result.status == 500
    assert len(result.error or "") <= 300
    assert sum(sent) < 100_000_000


@pytest.mark.parametrize("how", ["silent", "drip head", "drip body"])
def test_b77_post_ends_at_its_deadline(consumer: Hooks, how: str) -> None:
    def stall(request: object) -> None:
        write = request.wfile.write  # type: ignore[attr-defined]
        if how == "drip body":
            write(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
        elif how == "drip head":
            write(b"HTTP/1.1 200 OK\r\nx: ")
        while not consumer.over.wait(0.05):
            if how != "silent":
                write(b"x")

    consumer.answers["/ok"] = stall
    began = monotonic()
    result = post(consumer.url(), "127.0.0.0/8", timeout_seconds=0.4)
    assert monotonic() - began < 10
    assert result.status is None
    assert "Timeout" in (result.error or "")


def test_post_reports_a_closed_port_and_rubbish() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    assert "ConnectError" in (post(f"http://127.0.0.1:{port}/", "127.0.0.0/8").error or "")
    for url in (
        "http://",
        "https:///x",
        "ftp://127.0.0.1/",
        "http://[::1",
        "http://127.0.0.1:99999/",
        "",
        "http://\x00/",
    ):
        result = post(url, "127.0.0.0/8")
        assert result.status is None
        assert result.error
        assert "\x00" not in result.error


PRIVATE = [
    "127.0.0.1", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "192.0.2.1",
    "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "::1", "::", "fe80::1%eth0", "fc00::1", "ff02::1",
    "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "2001:db8::1", "::127.0.0.1",
]  # fmt: skip


@pytest.mark.parametrize("address", PRIVATE)
def test_b113_no_private_address_is_allowed(address: str) -> None:
    assert not is_allowed(address, ())


@pytest.mark.parametrize("address", ["1.1.1.1", "93.184.216.34", "2606:4700:4700::1111", "64:ff9b::101:101"])
def test_b113_public_addresses_are_allowed(address: str) -> None:
    assert is_allowed(address, ())


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "::ffff:127.0.0.1", "::1"])
def test_b113_configuration_allows_networks(address: str) -> None:
    assert is_allowed(address, (*LOOPBACK, ip_network("::1")))
    assert not is_allowed("10.0.0.1", LOOPBACK)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "2130706433", "0x7f000001", "0177.0.0.1", "0x7f.1", "127.1", "[::ffff:127.0.0.1]", "0.0.0.0",
     "localhost", "localhost.", "user@127.0.0.1", "user:pass@127.0.0.1", "１２７.0.0.1"],
)  # fmt: skip
def test_b113_post_to_loopback_in_any_spelling_connects_to_nothing(consumer: Hooks, host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as canary:
        canary.setblocking(False)
        result = post(f"http://{host}:{canary.getsockname()[1]}/ok")
        assert result.status is None
        assert result.error
        with pytest.raises(BlockingIOError):
            canary.accept()


def test_b113_what_was_checked_is_what_is_connected_to(consumer: Hooks) -> None:
    """A name that is public when it is asked first, and loopback when it is asked again."""
    asked: list[str] = []

    def rebinding(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.2"] if len(asked) == 1 else ["127.0.0.1"]

    backend = GuardedBackend([ip_network("127.0.0.2/32")], rebinding)
    with socket.create_server(("127.0.0.2", consumer.port)) as public:
        stream = backend.connect_tcp("rebinding.example", consumer.port, timeout=30)
        public.accept()[0].close()
        stream.close()
        with pytest.raises(httpcore.ConnectError, match="not a public address"):
            backend.connect_tcp("rebinding.example", consumer.port, timeout=30)
    assert asked == ["rebinding.example"] * 2


def test_b113_one_private_address_among_public_ones_is_enough() -> None:
    backend = GuardedBackend((), lambda host, port: ["1.1.1.1", "127.0.0.1"])
    with pytest.raises(httpcore.ConnectError, match="not a public address"):
        backend.connect_tcp("mixed.example", 80, timeout=30)


def test_connect_goes_on_to_the_next_address(consumer: Hooks) -> None:
    backend = GuardedBackend(LOOPBACK, lambda host, port: ["127.0.0.9", "127.0.0.1"])
    backend.connect_tcp("two.example", consumer.port, timeout=30).close()


def test_post_uses_no_proxy_of_the_environment(consumer: Hooks, monkeypatch: pytest.MonkeyPatch) -> None:
    with hooks() as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url(""))
        monkeypatch.setenv("ALL_PROXY", proxy.url(""))
        assert post(consumer.url(), "127.0.0.0/8").status == 204
        assert proxy.received == []


@pytest.mark.parametrize(
    "wrong", [{"ALLOW": "10.0.0.0/99"}, {"ALLOW": "10.0.0.1/8"}, {"TIMEOUT_SECONDS": "0"}, {"PER_ENDPOINT": "x"},
              {"PER_ENDPOINT": "0.5"}], ids=repr
)  # fmt: skip
def test_settings_name_the_variable_that_is_wrong(wrong: dict[str, str]) -> None:
    [(name, value)] = wrong.items()
    with pytest.raises(UsageError, match=f"JOBRUNNER_WEBHOOK_{name}"):
        WebhookSettings.from_environ({f"JOBRUNNER_WEBHOOK_{name}": value})


def test_settings_have_defaults() -> None:
    assert WebhookSettings.from_environ({}) == WebhookSettings(10.0, 8, ())
    given = WebhookSettings.from_environ({"JOBRUNNER_WEBHOOK_ALLOW": "10.1.0.0/16, 127.0.0.1"})
    assert given.allowed == (ip_network("10.1.0.0/16"), ip_network("127.0.0.1/32"))
