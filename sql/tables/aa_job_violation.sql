-- What the cleanup found to be wrong (S11, D17): a warning is gone with the session that it was given to.
create table if not exists mdm.aa_job_violation (
  name text primary key,
  found_at timestamptz not null,
  violations bigint not null,
  sample text not null
);

comment on table mdm.aa_job_violation is 'What the cleanup last found of each broken invariant; v_job_health shows it for a day. mdm.check_job_invariants() says what is wrong now.';
comment on column mdm.aa_job_violation.name is 'The invariant.';
comment on column mdm.aa_job_violation.found_at is 'When it was last found to be broken.';
comment on column mdm.aa_job_violation.violations is 'How many jobs of that slice broke it.';
comment on column mdm.aa_job_violation.sample is 'Ids of the first ten of them.';
