-- What the job system needs of the platform's tables. Run as their owner: on a platform of its own, by that owner.
grant select on mdm.aa_tenant, mdm.aa_principal, mdm.aa_principal_tenant, mdm.aa_audit_log to mdm_owner;
grant insert on mdm.aa_audit_log to mdm_owner;
