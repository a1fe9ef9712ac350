"""providers.smtp: settings, TLS and login against a real mail server."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from email.headerregistry import Address
from pathlib import Path

import pytest
from aiosmtpd.smtp import AuthResult

from cluster import missing
from jobrunner.demo.postbox import postbox
from jobrunner.errors import UsageError
from jobrunner.handlers.email_message import compose
from jobrunner.providers.mail import MailUnavailable
from jobrunner.providers.smtp import SmtpSettings, smtp_session

pytestmark = pytest.mark.one_leg("18")

SENDER = Address("MDM", "mdm", "example.org")
GOOD = {"JOBRUNNER_SMTP_HOST": "mail.example.org", "JOBRUNNER_SMTP_FROM": "M D <m@example.org>"}


def test_settings_are_read_from_the_environment() -> None:
    settings = SmtpSettings.from_environ({**GOOD, "JOBRUNNER_SMTP_USER": "u", "JOBRUNNER_SMTP_PASSWORD": "secret"})
    assert (settings.port, settings.tls, settings.timeout_seconds) == (587, "starttls", 10.0)
    assert str(settings.sender) == "M D <m@example.org>"
    assert "secret" not in repr(settings)


@pytest.mark.parametrize(("tls", "port"), [("tls", 465), ("none", 25)])
def test_settings_know_the_usual_ports(tls: str, port: int) -> None:
    assert SmtpSettings.from_environ({**GOOD, "JOBRUNNER_SMTP_TLS": tls}).port == port


@pytest.mark.parametrize(
    "wrong",
    [
        {"HOST": ""}, {"FROM": ""}, {"FROM": "nobody"}, {"FROM": "a@b\r\nBcc: x@y"}, {"FROM": "<>"}, {"PORT": "x"},
        {"PORT": "0"}, {"TIMEOUT_SECONDS": "nan"}, {"TIMEOUT_SECONDS": "-1"}, {"TLS": "yes"},
    ],
    ids=repr,
)  # fmt: skip
def test_settings_name_the_variable_that_is_wrong(wrong: dict[str, str]) -> None:
    [(name, value)] = wrong.items()
    with pytest.raises(UsageError, match=f"JOBRUNNER_SMTP_{name}"):
        SmtpSettings.from_environ({**GOOD, f"JOBRUNNER_SMTP_{name}": value})


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for localhost that signs itself, and its key."""
    if shutil.which("openssl") is None:
        missing("openssl", "no certificate can be made")
    folder = tmp_path_factory.mktemp("tls")
    made = (folder / "cert.pem", folder / "key.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-keyout", made[1], "-out", made[0], "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
        check=True, capture_output=True,
    )  # fmt: skip
    return made


def deliver(settings: SmtpSettings) -> None:
    [mail] = compose({"to": ["a@example.org"], "subject": "s", "text": "t"}, SENDER)
    with smtp_session(settings) as session:
        session.send(mail)


# aiosmtpd does not count TLS from the first byte
@pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS:UserWarning")
@pytest.mark.parametrize("tls", ["starttls", "tls"])
def test_session_encrypts_checks_the_certificate_and_logs_in(certificate: tuple[Path, Path], tls: str) -> None:
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(*certificate)
    secure = {"ssl_context": server} if tls == "tls" else {"tls_context": server, "require_starttls": True}
    auth = lambda server, session, envelope, mechanism, data: AuthResult(  # noqa: E731
        success=(data.login, data.password) == (b"u", b"p"), handled=False
    )
    with postbox(authenticator=auth, auth_required=True, auth_require_tls=tls == "starttls", **secure) as (box, port):

        def settings(**more: str) -> SmtpSettings:
            given = {"host": "localhost", "user": "u", "password": "p", "ca_file": str(certificate[0]), **more}
            return SmtpSettings(port=port, sender=SENDER, tls=tls, timeout_seconds=30.0, **given)  # type: ignore[arg-type]

        deliver(settings())
        assert box.addressees == ["a@example.org"]
        with pytest.raises(MailUnavailable, match="Authentication"):
            deliver(settings(password="wrong"))
        with pytest.raises(MailUnavailable, match="certificate verify failed"):
            deliver(settings(ca_file=None))  # type: ignore[arg-type]
        with pytest.raises(MailUnavailable, match="certificate"):
            deliver(settings(host="127.0.0.1"))
        assert len(box.raw) == 1


def test_session_refuses_to_go_on_without_encryption() -> None:
    with postbox() as (box, port):
        settings = SmtpSettings("127.0.0.1", port, SENDER, user="u", password="p", timeout_seconds=30.0)
        with pytest.raises(MailUnavailable, match="STARTTLS"):
            deliver(settings)
        assert box.raw == []
