-- The fence of a PostgreSQL database, version 12 or later: it refuses the transactions of a former leader.
--
-- Run this once in the database that leaders write to, whatever lock their elections are on:
--
--     psql --file postgres-fence.sql DATABASE
--
-- and grant the role that writes:
--
--     GRANT SELECT, INSERT, UPDATE ON incumbent_fence TO writers;
--
-- Then each transaction of a leader calls this with the token of its term:
--
--     SELECT incumbent_fence('my_app', 4711);
--
-- It raises an exception with the SQLSTATE IN001 once a later term has fenced: the term is over. On any other exception roll back and
-- try again. Call it outside of savepoints, as rolling back to one takes away what has been called since. It returns whether it has
-- raised the token, and false where that was there already.
--
-- It may be run again. The table and the function are created in the first schema of the search_path.

BEGIN;

-- Several may run this at once.
SELECT pg_advisory_xact_lock(1718510437, 0);

-- The greatest token that has fenced, for each election. Delete a row only if the tokens of its election begin anew, on another lock.
CREATE TABLE IF NOT EXISTS incumbent_fence (
    name  text   PRIMARY KEY CHECK (name <> ''),
    token bigint NOT NULL CHECK (token > 0)
);

-- The function finds the table there, whatever the search_path of its caller.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- Two locks, until the end of the transaction. That on the row is what excludes: a transaction of this term holds it shared, and one
-- that raises the token waits for all of these. At a stricter isolation level than READ COMMITTED it also finds that the token was
-- raised since the snapshot (SQLSTATE 40001). The advisory lock makes the order of waiting fair: with the row alone, a former leader
-- whose transactions overlap would keep its successor waiting forever.
--
-- The first read takes no lock: two transactions that both held the row shared could not raise its token.
CREATE OR REPLACE FUNCTION incumbent_fence(election text, term bigint) RETURNS boolean LANGUAGE plpgsql
    SET search_path FROM CURRENT AS $$
DECLARE
    last bigint;
    raised boolean := false;
BEGIN
    IF election IS NULL OR election = '' THEN
        RAISE EXCEPTION 'an election has a name' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF term IS NULL OR term <= 0 THEN
        RAISE EXCEPTION 'a token is a positive number' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT token INTO last FROM incumbent_fence WHERE name = election;
    IF last IS NULL OR last <= term THEN
        IF last = term THEN
            PERFORM pg_advisory_xact_lock_shared(1718510437, hashtext(election));
        ELSE
            PERFORM pg_advisory_xact_lock(1718510437, hashtext(election));
            INSERT INTO incumbent_fence AS fence (name, token) VALUES (election, term)
                ON CONFLICT (name) DO UPDATE SET token = EXCLUDED.token WHERE fence.token < EXCLUDED.token;
            raised := FOUND;
        END IF;
        SELECT token INTO last FROM incumbent_fence WHERE name = election FOR SHARE;
    END IF;
    IF last IS NULL THEN
        RAISE EXCEPTION 'election %: its row in incumbent_fence was deleted just now', election
            USING ERRCODE = 'serialization_failure';
    END IF;
    IF last <> term THEN
        RAISE EXCEPTION 'election %: the term with token % is over, as the one with token % has written', election, term, last
            USING ERRCODE = 'IN001', DETAIL = last;
    END IF;
    RETURN raised;
END $$;

COMMIT;
