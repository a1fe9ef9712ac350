-- Installs or upgrades everything with psql alone: psql -v ON_ERROR_STOP=1 -f sql/install.sql
set client_min_messages = warning;
\ir once.sql
\ir always.sql
