-- From here on objects belong to mdm_owner: the jobs, their functions and views.
set role mdm_owner;
