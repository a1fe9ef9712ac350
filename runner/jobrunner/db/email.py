"""The database half of the kind email_send (S2.1): the mark before a mail is handed over, the record after it."""

from __future__ import annotations

from typing import NamedTuple

from jobrunner.db.call import Call, nothing


class EmailMark(NamedTuple):
    """What to do with a recipient: send, sent, suppressed, refused or unknown."""

    decision: str
    message_id: str


def mark_email(
    *, job_id: int, lease_no: int, recipient: str, subject: str, provider: str, domain: str
) -> Call[EmailMark]:
    """Mark one recipient as sending and give the Message-ID, the same in every run; MJ001 when the lease is lost."""
    return Call(
        """select m.decision, m.message_id
           from mdm.mark_email(p_job_id => %(job_id)s, p_lease_no => %(lease_no)s, p_recipient => %(recipient)s,
             p_subject => %(subject)s, p_provider => %(provider)s, p_domain => %(domain)s) m""",
        lambda rows: EmailMark._make(rows[0]),
        {
            "job_id": job_id,
            "lease_no": lease_no,
            "recipient": recipient,
            "subject": subject,
            "provider": provider,
            "domain": domain,
        },
    )


def record_email(*, job_id: int, lease_no: int, recipient: str, outcome: str, error: str | None = None) -> Call[None]:
    """Record sent (audited), failed (try again) or refused (for good); MJ001 when the lease is lost."""
    return Call(
        """select mdm.record_email(p_job_id => %(job_id)s, p_lease_no => %(lease_no)s, p_recipient => %(recipient)s,
             p_outcome => %(outcome)s, p_error => %(error)s)""",
        nothing,
        {"job_id": job_id, "lease_no": lease_no, "recipient": recipient, "outcome": outcome, "error": error},
    )
