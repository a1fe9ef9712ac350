-- From here on objects belong to mdm_platform: the stand-ins for tables that a platform brings itself (D20).
set role mdm_platform;
