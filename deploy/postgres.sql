-- The tables in which `incumbent` keeps elections on PostgreSQL 12 or later.
--
-- A candidate with the permission to create them does so itself. For others run this once, as the role that shall own them:
--
--     psql --single-transaction --file postgres.sql DATABASE
--
-- and grant the role of the candidates the fewest permissions:
--
--     GRANT SELECT, INSERT, UPDATE ON incumbent_elections TO candidates;
--     GRANT SELECT ON incumbent_settings TO candidates;
--     GRANT SELECT, INSERT, UPDATE ON incumbent_checkpoints TO candidates; -- of elections with a checkpoint
--
-- It may be run again. The tables are found by the search_path.

CREATE TABLE IF NOT EXISTS incumbent_settings (
    single        boolean     PRIMARY KEY DEFAULT true CHECK (single),
    version       integer     NOT NULL,
    -- No lease may be longer. Change it only while there are no candidates.
    longest_lease interval    NOT NULL CHECK (longest_lease >= interval '1 second'),
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- The server and its history on which they were created: on another one, after a failover, a restore or an imported
    -- dump, elections of that one may be missing.
    incarnation   text
);
ALTER TABLE incumbent_settings ADD COLUMN IF NOT EXISTS incarnation text;

-- One row per election. It stays when its holder has gone, so that revisions, and with them tokens, never go back.
CREATE TABLE IF NOT EXISTS incumbent_elections (
    name           text        PRIMARY KEY CHECK (name <> ''),
    -- The identity, for people. NULL: there is no holder.
    holder         text,
    acquired_at    timestamptz,
    renewed_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- For how long after renewed_at the holder must be waited for.
    lease_duration interval    NOT NULL,
    -- How often the election has changed hands.
    transitions    integer     NOT NULL DEFAULT 0,
    -- Every write has a greater one.
    revision       bigint      NOT NULL,
    -- The advertisement of the leader, its priority and site, and the pause of the election, in JSON.
    advertised     text,
    -- The revision of the write that began the term.
    token          bigint,
    -- The candidate that wrote this, and the number of the write.
    nonce          text,
    write          bigint,
    -- Of a release: the candidate, the rest of its own wait, and the cause.
    released_by    text,
    released_left  interval,
    released_cause text,
    -- The candidate that the release handed the election over to.
    released_to    text,
    -- The server and its history on which this was written: another one after a replica was promoted or a backup restored.
    incarnation    text,
    -- The revision before this one, if nothing can have been lost between the two.
    previous       bigint,
    -- The step-down notice of the last superseded leader, in JSON: a role without UPDATE cannot send one.
    conceded       text,
    -- When the server was started that wrote this: a server started since may run on files of before the row's last write.
    started        timestamptz
);
ALTER TABLE incumbent_elections ADD COLUMN IF NOT EXISTS previous bigint;
ALTER TABLE incumbent_elections ADD COLUMN IF NOT EXISTS conceded text;
ALTER TABLE incumbent_elections ADD COLUMN IF NOT EXISTS released_to text;
ALTER TABLE incumbent_elections ADD COLUMN IF NOT EXISTS started timestamptz;

-- What each term of an election leaves to the next. It stays until somebody deletes it.
CREATE TABLE IF NOT EXISTS incumbent_checkpoints (
    name       text        PRIMARY KEY CHECK (name <> ''),
    -- Another one with every write, drawn at random.
    version    bigint      NOT NULL,
    -- A line of JSON, and the data.
    content    bytea       NOT NULL,
    written_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- With the permissions of the tables' owner, so that it answers all roles alike: those that differ would take each other's rows for
-- those of another server.
CREATE OR REPLACE FUNCTION incumbent_incarnation() RETURNS text LANGUAGE plpgsql STABLE
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (SELECT system_identifier FROM pg_control_system())
        || '/' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8);
EXCEPTION
    -- A server that does not tell, as some that are rented out.
    WHEN insufficient_privilege OR undefined_function OR feature_not_supported THEN
        RETURN '';
    -- A replica.
    WHEN object_not_in_prerequisite_state THEN
        RETURN NULL;
END $$;

-- Makes a change by hand a write as well: it gets a revision of its own, and loses the candidate's mark, which belongs to
-- another write. Numbers a write above all that may have been lost.
-- No trigger finds functions by the search_path of the session: whoever may create one in a schema there, as everybody may in
-- `public` before PostgreSQL 15, would have it run with the permissions of candidates.
CREATE OR REPLACE FUNCTION incumbent_guard() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    history  text;
    timeline bigint;
    -- Greater than all earlier revisions, as long as the writes to an election have not averaged a thousand per second or
    -- more. Each server that takes over adds the amount by which its clock may be behind its predecessor's: 11 days.
    above    bigint;
    begins   boolean;
BEGIN
    IF current_setting('synchronous_commit') = 'off' THEN
        -- What is acknowledged must not be forgotten.
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    IF TG_OP = 'DELETE' THEN
        EXECUTE format('UPDATE %I.%I SET holder = NULL WHERE name = $1', TG_TABLE_SCHEMA, TG_TABLE_NAME)
            USING OLD.name;
        RETURN NULL;
    END IF;
    IF TG_OP = 'UPDATE' AND NEW.conceded IS DISTINCT FROM OLD.conceded
        AND to_jsonb(NEW) - 'conceded' = to_jsonb(OLD) - 'conceded' THEN
        -- A notice does not change the entry.
        RETURN NEW;
    END IF;
    IF TG_OP = 'UPDATE' AND NEW.revision <= OLD.revision THEN
        NEW.revision := OLD.revision + 1;
        NEW.renewed_at := clock_timestamp();
        NEW.token := NULL;
        NEW.nonce := NULL;
        NEW.write := NULL;
        NEW.released_by := NULL;
        NEW.released_left := NULL;
        NEW.released_cause := NULL;
        NEW.released_to := NULL;
    END IF;
    EXECUTE format('SELECT %I.incumbent_incarnation()', TG_TABLE_SCHEMA) INTO history;
    timeline := coalesce(('x' || nullif(right(history, 8), ''))::bit(32)::bigint, 1);
    above := floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint + 1000000000 * (timeline - 1);
    -- The token of a term is the revision of its first write.
    begins := NEW.token = NEW.revision;
    NEW.previous := NULL;
    IF TG_OP = 'INSERT' THEN
        NEW.revision := greatest(NEW.revision, above);
    ELSIF NEW.incarnation IS NOT NULL AND OLD.incarnation = history AND OLD.started = pg_postmaster_start_time() THEN
        IF NEW.revision = OLD.revision + 1 THEN
            NEW.previous := OLD.revision;
        END IF;
    ELSE
        -- The server has taken over, or was started anew, on files that may lack the last writes: a thousand revisions for
        -- each second since, and a million of its own for each server of the history.
        NEW.revision := greatest(NEW.revision, above, OLD.revision + 1000000 * timeline
            + greatest(0, floor(extract(epoch FROM clock_timestamp() - OLD.renewed_at) * 1000)::bigint));
    END IF;
    IF begins THEN
        NEW.token := NEW.revision;
    END IF;
    NEW.incarnation := history;
    NEW.started := pg_postmaster_start_time();
    RETURN NEW;
END $$;

-- What is acknowledged must not be forgotten.
CREATE OR REPLACE FUNCTION incumbent_durable() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    RETURN NEW;
END $$;

-- A notification is a reason to read the row: any role that may connect can send one.
CREATE OR REPLACE FUNCTION incumbent_tell() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pg_notify('incumbent.' || TG_TABLE_SCHEMA, json_build_object('name', NEW.name)::text);
    RETURN NULL;
END $$;

-- For an operator: run it after the server's files were restored from a base backup or a snapshot, before candidates return
-- or after:
--
--     SELECT incumbent_restored();
--
-- From then on nothing counts that the tables say of leaders: each term ends, the next leader waits for the longest lease, and
-- tokens continue above all that may have been given out. Returns the number of elections.
CREATE OR REPLACE FUNCTION incumbent_restored() RETURNS bigint LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    elections bigint;
BEGIN
    UPDATE incumbent_settings SET created_at = clock_timestamp(), incarnation = incumbent_incarnation();
    UPDATE incumbent_elections SET holder = NULL, advertised = NULL, incarnation = NULL;
    GET DIAGNOSTICS elections = ROW_COUNT;
    RETURN elections;
END $$;

CREATE OR REPLACE FUNCTION incumbent_refuse() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'elections are not truncated, since their tokens must never go back: delete rows instead';
END $$;

DROP TRIGGER IF EXISTS incumbent_guard ON incumbent_elections;
CREATE TRIGGER incumbent_guard BEFORE INSERT OR UPDATE OR DELETE ON incumbent_elections
    FOR EACH ROW EXECUTE FUNCTION incumbent_guard();
DROP TRIGGER IF EXISTS incumbent_durable ON incumbent_checkpoints;
CREATE TRIGGER incumbent_durable BEFORE INSERT OR UPDATE ON incumbent_checkpoints
    FOR EACH ROW EXECUTE FUNCTION incumbent_durable();
DROP TRIGGER IF EXISTS incumbent_tell ON incumbent_elections;
CREATE TRIGGER incumbent_tell AFTER INSERT OR UPDATE ON incumbent_elections
    FOR EACH ROW EXECUTE FUNCTION incumbent_tell();
DROP TRIGGER IF EXISTS incumbent_refuse ON incumbent_elections;
CREATE TRIGGER incumbent_refuse BEFORE TRUNCATE ON incumbent_elections
    FOR EACH STATEMENT EXECUTE FUNCTION incumbent_refuse();

INSERT INTO incumbent_settings (version, longest_lease, incarnation)
    VALUES (1, interval '60 seconds', incumbent_incarnation())
    ON CONFLICT (single) DO NOTHING RETURNING version;
