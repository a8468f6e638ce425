-- Rights of three roles on a ledger in Postgres: worker, console, submitter. None of them may change or delete an entry of the audit log.
-- Run it as the owner of the tables, after each `redrive ledger migrate`: psql -v ON_ERROR_STOP=1 -f roles.sql
-- The roles are made once by an account that may make roles; see README.md:
--   CREATE ROLE redrive_worker NOLOGIN; CREATE ROLE redrive_console NOLOGIN; CREATE ROLE redrive_submitter NOLOGIN;
-- Then: GRANT redrive_worker TO shop_worker; and so on, for the accounts that programs log in by.
-- Erasing a user's name from the audit log (`redrive erase`) and migrating need the owner.
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
        EXECUTE format('GRANT SELECT ON public.%I TO redrive_worker, redrive_console', found);
        CONTINUE WHEN found IN ('redrive_version', 'redrive_audit');
        EXECUTE format('GRANT INSERT, UPDATE, DELETE ON public.%I TO redrive_worker', found);
        -- The console acts for operators: it replays, discards, releases and plans, and submits nothing of its own.
        CONTINUE WHEN found IN ('redrive_worker', 'redrive_hidden_name');
        EXECUTE format('GRANT INSERT, UPDATE, DELETE ON public.%I TO redrive_console', found);
    END LOOP;
    FOR found IN
        SELECT sequencename FROM pg_sequences WHERE schemaname = 'public' AND sequencename LIKE 'redrive\_%'
    LOOP
        EXECUTE format('GRANT USAGE ON SEQUENCE public.%I TO redrive_worker, redrive_console, redrive_submitter', found);
    END LOOP;
END $$;

-- Entries of the audit log are added, and never changed.
GRANT INSERT ON public.redrive_audit TO redrive_worker, redrive_console, redrive_submitter;
GRANT INSERT ON public.redrive_hidden_name TO redrive_submitter;

-- A submitter writes jobs, keeps idempotency keys, and reads what became of its jobs. `app.receive(event)` needs redrive_worker.
GRANT SELECT ON public.redrive_version, public.redrive_hidden_name, public.redrive_audit, public.redrive_dead,
    public.redrive_kind TO redrive_submitter;
GRANT SELECT, INSERT ON public.redrive_job TO redrive_submitter;
GRANT SELECT, INSERT ON public.redrive_tally_delta, public.redrive_attempt, public.redrive_failure_delta TO redrive_submitter;
GRANT SELECT, INSERT, UPDATE, DELETE ON public.redrive_key TO redrive_submitter;

COMMIT;
