-- Grants rights on a Postgres ledger to three roles: worker, console, submitter. None of them can change or delete audit log entries.
-- Run it as the owner of the tables after each `redrive ledger migrate`: psql -v ON_ERROR_STOP=1 -f roles.sql
-- Create the roles once, with an account that has CREATEROLE (see README.md):
--   CREATE ROLE redrive_worker NOLOGIN; CREATE ROLE redrive_console NOLOGIN; CREATE ROLE redrive_submitter NOLOGIN;
-- Then grant them to your login accounts: GRANT redrive_worker TO shop_worker;
-- Migrations and `redrive erase` (removes a user name from the audit log) need the owner.
BEGIN;

GRANT USAGE ON SCHEMA public TO redrive_worker, redrive_console, redrive_submitter;

DO $$
DECLARE
    found text;
BEGIN
    FOR found IN
        SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename LIKE 'redrive\_%'
    LOOP
        EXECUTE format('REVOKE ALL ON public.%I FROM PUBLIC, redrive_worker, redrive_console, redrive_submitter', found);
        -- Only the owner creates tokens of the console. Workers have no access to tokens and sessions.
        IF found IN ('redrive_access_token', 'redrive_session') THEN
            EXECUTE format('GRANT SELECT ON public.%I TO redrive_console', found);
            CONTINUE WHEN found = 'redrive_access_token';
            EXECUTE format('GRANT INSERT, UPDATE, DELETE ON public.%I TO redrive_console', found);
            CONTINUE;
        END IF;
        EXECUTE format('GRANT SELECT ON public.%I TO redrive_worker, redrive_console', found);
        CONTINUE WHEN found IN ('redrive_version', 'redrive_audit');
        EXECUTE format('GRANT INSERT, UPDATE, DELETE ON public.%I TO redrive_worker', found);
        -- The console replays, discards, releases and plans for operators. It submits no jobs of its own.
        CONTINUE WHEN found IN ('redrive_worker', 'redrive_hidden_name');
        EXECUTE format('GRANT INSERT, UPDATE, DELETE ON public.%I TO redrive_console', found);
    END LOOP;
    FOR found IN
        SELECT sequencename FROM pg_sequences WHERE schemaname = 'public' AND sequencename LIKE 'redrive\_%'
    LOOP
        EXECUTE format('GRANT USAGE ON SEQUENCE public.%I TO redrive_worker, redrive_console, redrive_submitter', found);
    END LOOP;
END $$;

-- Audit log entries can be added, never changed.
GRANT INSERT ON public.redrive_audit TO redrive_worker, redrive_console, redrive_submitter;
GRANT INSERT ON public.redrive_hidden_name TO redrive_submitter;

-- A submitter adds jobs, stores idempotency records and reads the results of jobs. `app.receive(event)` needs redrive_worker.
GRANT SELECT ON public.redrive_version, public.redrive_hidden_name, public.redrive_audit, public.redrive_dead,
    public.redrive_kind TO redrive_submitter;
GRANT SELECT, INSERT ON public.redrive_job TO redrive_submitter;
GRANT SELECT, INSERT ON public.redrive_tally_delta, public.redrive_attempt, public.redrive_failure_delta TO redrive_submitter;
GRANT SELECT, INSERT, UPDATE, DELETE ON public.redrive_key TO redrive_submitter;

COMMIT;
