-- The schema that holds the job system and, on a platform, the platform's own tables beside it (D1, D20).
do $$
begin
  if current_setting('server_version_num')::int < 150000 then
    raise exception 'PostgreSQL % is too old for mdm jobs', current_setting('server_version')
      using errcode = 'feature_not_supported', hint = 'Use PostgreSQL 15 or newer (D21).';
  end if;
  if current_setting('server_encoding') <> 'UTF8' then
    raise exception 'database % has encoding %, mdm jobs needs UTF8', current_database(), current_setting('server_encoding')
      using errcode = 'feature_not_supported', hint = 'Create the database with: create database ... encoding ''UTF8'' template template0.';
  end if;
end
$$;

create schema if not exists mdm;
