-- Stand-in for the platform's registry of entity types (D20), for instance airport. Types belong to the platform, not to a tenant.
do $$
begin
  if to_regclass('mdm.ddm_entity_type') is not null then
    return;
  end if;

  create table mdm.ddm_entity_type (
    id uuid primary key default gen_random_uuid(),
    type_key text not null unique,
    name text not null default '',
    is_external_source_target boolean not null default false,
    gin_index_status mdm.index_status not null default 'none',
    created_at timestamptz not null default clock_timestamp(),
    constraint ddm_entity_type_key_check check (type_key <> '')
  );

  comment on table mdm.ddm_entity_type is 'Registry of entity types (a stand-in where the platform brings none, D20).';
  comment on column mdm.ddm_entity_type.id is 'The type.';
  comment on column mdm.ddm_entity_type.type_key is 'Its name in payloads, index names and code, for instance airport.';
  comment on column mdm.ddm_entity_type.name is 'Its name for people.';
  comment on column mdm.ddm_entity_type.is_external_source_target is
    'true: external sources match against its attributes, which wants a GIN index (S2.8).';
  comment on column mdm.ddm_entity_type.gin_index_status is 'Where that index stands (S2.8).';
  comment on column mdm.ddm_entity_type.created_at is 'When the type was registered.';
end
$$;
