-- Stand-in for the platform's type (D20): what the scan of an attachment said.
do $$
begin
  create type mdm.virus_scan_status as enum ('pending', 'clean', 'infected', 'failed');
  comment on type mdm.virus_scan_status is 'Result of the scan of an attachment (S2.6): pending, clean, infected; failed = could not be scanned and is never served as clean.';
exception
  when duplicate_object then null;
end
$$;
