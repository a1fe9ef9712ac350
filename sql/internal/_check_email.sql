-- What mdm.send_email refuses at the producer: an email that could never be sent. The handler checks again, since a job can be
-- enqueued without send_email.
create or replace function mdm._check_email(p_to text[], p_subject text, p_text text, p_html text, p_reply_to text)
returns void
language plpgsql
volatile
parallel unsafe
security invoker
-- the backslashes below mean what they say, whatever the session's setting
set standard_conforming_strings = on
as $$
declare
  -- ASCII, one @, nothing that ends a header or an address
  c_address constant text := '^[^][:cntrl:][:space:]<>()[\\,;:"@\u0080-\uffff]{1,64}@[A-Za-z0-9.-]{1,189}$';
  v_bad text;
begin
  select coalesce(quote_literal(left(a.address, 100)), 'NULL')
  into v_bad
  from unnest(array_append(p_to, coalesce(p_reply_to, 'nobody@example.org'))) as a (address)
  where a.address is null or a.address !~ c_address
  limit 1;
  if coalesce(cardinality(p_to), 0) not between 1 and 100 then
    perform mdm._raise('MJ005', format('an email to %s recipients', coalesce(cardinality(p_to), 0)), null,
      'Give 1 to 100 recipients; each gets a message of its own.');
  elsif v_bad is not null then
    perform mdm._raise('MJ005', 'not an email address', format('address: %s', v_bad),
      'Write user@example.org: ASCII, without a name, spaces or line breaks.');
  elsif p_subject is null or char_length(p_subject) > 900 or p_subject ~ '[[:cntrl:]]' then
    perform mdm._raise('MJ005', 'subject is missing, too long or has control characters', null,
      'Give one line of at most 900 characters.');
  elsif coalesce(p_text, p_html) is null then
    perform mdm._raise('MJ005', 'an email without text', null, 'Give p_text, p_html or both.');
  end if;
end
$$;

comment on function mdm._check_email(text[], text, text, text, text) is 'Raises MJ005 for an email that could never be sent. Private.';
