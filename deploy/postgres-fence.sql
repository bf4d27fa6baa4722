-- The fence of a PostgreSQL database: it refuses the transactions of a former leader.
--
-- Run this once in the database that leaders write to, whatever lock their elections are on:
--
--     psql --single-transaction --file postgres-fence.sql DATABASE
--
-- and grant the role that writes:
--
--     GRANT SELECT, INSERT, UPDATE ON incumbent_fence TO writers;
--
-- Then each transaction of a leader calls, before its first other statement, with the token of its term:
--
--     SELECT incumbent_fence('my_app', 4711);
--
-- It raises an exception with the SQLSTATE IN001 once a later term has fenced. It may be run again.

-- The greatest token that has fenced, for each election. Delete a row only if tokens of its election begin anew, on another lock.
CREATE TABLE IF NOT EXISTS incumbent_fence (
    name  text   PRIMARY KEY CHECK (name <> ''),
    token bigint NOT NULL CHECK (token > 0)
);

-- Holds the row shared until the end of the transaction, so that transactions of one term do not wait for each other, and the first
-- one of the next term waits for those of this one. The first read takes no lock: two transactions that both held the row shared
-- could not raise its token.
CREATE OR REPLACE FUNCTION incumbent_fence(election text, term bigint) RETURNS void LANGUAGE plpgsql
    SET search_path FROM CURRENT AS $$
DECLARE
    last bigint;
BEGIN
    IF term IS NULL OR term <= 0 THEN
        RAISE EXCEPTION 'a token is a positive number' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT token INTO last FROM incumbent_fence WHERE name = election;
    IF last IS NULL OR last < term THEN
        INSERT INTO incumbent_fence AS fence (name, token) VALUES (election, term)
            ON CONFLICT (name) DO UPDATE SET token = EXCLUDED.token WHERE fence.token < EXCLUDED.token;
    END IF;
    SELECT token INTO last FROM incumbent_fence WHERE name = election FOR SHARE;
    IF last IS DISTINCT FROM term THEN
        RAISE EXCEPTION 'election %: the term with token % is over, as the one with token % has written', election, term, last
            USING ERRCODE = 'IN001', DETAIL = last;
    END IF;
END $$;
