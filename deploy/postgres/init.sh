#!/bin/sh
# The Postgres image runs this once, for an empty data directory, as the superuser. Redrive never logs in as the superuser.
# Creates the owner of the ledger and the accounts of workers and console. After the migration, roles.sql grants their rights.
set -eu

password_of() { # from a line account:password
    sed -n "s/^$1://p" "${ACCOUNTS:-/run/secrets/ledger_accounts}"
}

psql --set=ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname postgres \
    --set=o="$(password_of redrive_owner)" --set=w="$(password_of worker)" --set=c="$(password_of console)" <<'SQL'
CREATE ROLE redrive_worker NOLOGIN;
CREATE ROLE redrive_console NOLOGIN;
CREATE ROLE redrive_submitter NOLOGIN;
CREATE ROLE redrive_owner LOGIN PASSWORD :'o';
CREATE ROLE worker LOGIN IN ROLE redrive_worker PASSWORD :'w';
CREATE ROLE console LOGIN IN ROLE redrive_console PASSWORD :'c';
CREATE DATABASE redrive OWNER redrive_owner;
REVOKE ALL ON DATABASE redrive FROM PUBLIC;
GRANT CONNECT ON DATABASE redrive TO redrive_worker, redrive_console, redrive_submitter;
\connect redrive
ALTER SCHEMA public OWNER TO redrive_owner;
REVOKE CREATE ON SCHEMA public FROM PUBLIC;
SQL
