-- Stand-in for the platform's type (D20): how far one email came.
do $$
begin
  create type mdm.email_status as enum ('sending', 'sent', 'failed', 'suppressed');
  comment on type mdm.email_status is 'State of one email (S2.1): sending is marked before the provider is called, sent, failed, suppressed.';
exception
  when duplicate_object then null;
end
$$;
