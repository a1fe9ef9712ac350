-- What the job system needs of the platform's tables. Run as their owner: on a platform of its own, by that owner.
grant select on mdm.aa_tenant, mdm.aa_principal, mdm.aa_principal_tenant, mdm.aa_audit_log to mdm_owner;
grant insert on mdm.aa_audit_log to mdm_owner;
-- reindex (S2.3)
grant select on mdm.ddm_entity_type, mdm.ddm_entity_type_attribute, mdm.ddm_entity to mdm_owner;
grant update (search_vector) on mdm.ddm_entity to mdm_owner;
-- compact_outbox (S2.5)
grant select, update, delete on mdm.aa_outbox_event to mdm_owner;
