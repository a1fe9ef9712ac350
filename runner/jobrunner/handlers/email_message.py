"""Builds the mails of an email_send payload: one message a recipient, headers that nobody can break out of (B106)."""

from __future__ import annotations

import re
from email.errors import MessageError
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from typing import Any, Final

from jobrunner.errors import PermanentError
from jobrunner.providers.mail import Mail

# Seven bits, since nobody has asked the server for more.
POLICY: Final = SMTP.clone(cte_type="7bit")
KEYS: Final = {"to", "subject", "text", "html", "reply_to"}
MAX_RECIPIENTS: Final = 100
MAX_HEADER_CHARACTERS: Final = 900
MAX_ADDRESS_CHARACTERS: Final = 254
CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
ADDRESS: Final = re.compile(r"""[^\]\[\s<>()\\,;:"@\x00-\x1f\x7f-\U0010ffff]{1,64}@[A-Za-z0-9.-]{1,189}""")


def compose(payload: dict[str, Any], sender: Address) -> list[Mail]:
    """Build the mails of a payload, without Message-ID. Raises PermanentError: such a payload never becomes right.

    Payload: `to` (addresses, or {"address", "name"} objects), `subject`, `text` or `html` or both, `reply_to`.
    """
    if payload.keys() - KEYS:
        raise PermanentError(f"unknown key in the payload: {', '.join(sorted(payload.keys() - KEYS))[:200]}")
    recipients = _recipients(payload.get("to"))
    try:
        return [Mail(address.addr_spec, _message(payload, sender, address)) for address in recipients]
    except (MessageError, ValueError, IndexError) as error:
        raise PermanentError(f"the email cannot be built: {error}") from error


def _recipients(given: Any) -> list[Address]:
    """The recipients in their order, each address once whatever its case."""
    if not isinstance(given, list) or not 1 <= len(given) <= MAX_RECIPIENTS:
        raise PermanentError(f"`to` must be a list of 1 to {MAX_RECIPIENTS} recipients")
    unique: dict[str, Address] = {}
    for one in given:
        address = _address(one)
        unique.setdefault(address.addr_spec.lower(), address)
    return list(unique.values())


def _address(given: Any) -> Address:
    """One recipient: a text, or an object of address and name."""
    if isinstance(given, dict) and given.keys() <= {"address", "name"}:
        return _checked(given.get("address"), _line(given.get("name", ""), "a recipient's name"))
    return _checked(given, "")


def _checked(address: Any, name: str) -> Address:
    """An address that has no way to be anything else."""
    good = isinstance(address, str) and len(address) <= MAX_ADDRESS_CHARACTERS and ADDRESS.fullmatch(address)
    if not good:
        raise PermanentError(f"not an email address: {str(address)[:100]!r}")
    try:
        return Address(name, addr_spec=address)
    except (MessageError, ValueError, IndexError) as error:
        raise PermanentError(f"not an email address: {address[:100]!r}: {error}") from error


def _line(given: Any, what: str) -> str:
    """A text that fits into a header."""
    if not isinstance(given, str) or len(given) > MAX_HEADER_CHARACTERS or CONTROL.search(given):
        raise PermanentError(f"{what} must be one line of at most {MAX_HEADER_CHARACTERS} characters")
    return given


def _message(payload: dict[str, Any], sender: Address, recipient: Address) -> EmailMessage:
    """The message to one recipient."""
    message = EmailMessage(policy=POLICY)
    message["From"] = sender
    message["To"] = recipient
    message["Subject"] = _line(payload.get("subject"), "the subject")
    if "reply_to" in payload:
        message["Reply-To"] = _checked(payload["reply_to"], "")
    text, html = payload.get("text"), payload.get("html")
    if not all(part is None or isinstance(part, str) for part in (text, html)) or (text is None and html is None):
        raise PermanentError("an email needs a text: `text`, `html` or both")
    if text is not None:
        message.set_content(text)
    if html is not None and text is not None:
        message.add_alternative(html, subtype="html")
    elif html is not None:
        message.set_content(html, subtype="html")
    return message
