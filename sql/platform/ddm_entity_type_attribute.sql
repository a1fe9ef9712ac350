-- Stand-in for the platform's registry of attributes (D20): which keys of ddm_entity.attributes a type has, and what a steward wants of them.
do $$
begin
  if to_regclass('mdm.ddm_entity_type_attribute') is not null then
    return;
  end if;

  create table mdm.ddm_entity_type_attribute (
    id uuid primary key default gen_random_uuid(),
    entity_type_id uuid not null references mdm.ddm_entity_type (id) on delete cascade,
    attribute_key text not null,
    name text not null default '',
    data_type text not null default 'text',
    required boolean not null default false,
    reference_type_id uuid references mdm.ddm_entity_type (id),
    searchable boolean not null default false,
    sortable boolean not null default false,
    index_status mdm.index_status not null default 'none',
    index_error text,
    -- its first column is the index of the foreign key too
    constraint uq_ddm_entity_type_attribute_key unique (entity_type_id, attribute_key),
    constraint ddm_entity_type_attribute_key_check check (attribute_key <> ''),
    constraint ddm_entity_type_attribute_data_type_check check (
      data_type in ('text', 'number', 'boolean', 'date', 'timestamp'))
  );

  -- the foreign key
  create index ix_ddm_entity_type_attribute_reference on mdm.ddm_entity_type_attribute (reference_type_id)
    where reference_type_id is not null;

  comment on table mdm.ddm_entity_type_attribute is 'Attributes of the entity types (a stand-in where the platform brings none, D20).';
  comment on column mdm.ddm_entity_type_attribute.id is 'The attribute.';
  comment on column mdm.ddm_entity_type_attribute.entity_type_id is 'The type that has it.';
  comment on column mdm.ddm_entity_type_attribute.attribute_key is 'Top-level key in ddm_entity.attributes; below it any JSON value may stand.';
  comment on column mdm.ddm_entity_type_attribute.name is 'Its name for people.';
  comment on column mdm.ddm_entity_type_attribute.data_type is
    'text, number, boolean, date or timestamp: what the value is cast to in an index.';
  comment on column mdm.ddm_entity_type_attribute.required is 'true: an import rejects rows without it (S2.2).';
  comment on column mdm.ddm_entity_type_attribute.reference_type_id is
    'The value is the entity_key of an entity of this type and the same tenant; an import rejects others (S2.2). NULL = no reference.';
  comment on column mdm.ddm_entity_type_attribute.searchable is
    'true: its words are in ddm_entity.search_vector. After a change a reindex of the type is due (S2.3, S2.7).';
  comment on column mdm.ddm_entity_type_attribute.sortable is 'true: an expression index for sorting is wanted (S2.7).';
  comment on column mdm.ddm_entity_type_attribute.index_status is 'Where the attribute''s index stands (S2.7).';
  comment on column mdm.ddm_entity_type_attribute.index_error is 'Why the last build failed, NULL = it did not.';
end
$$;
