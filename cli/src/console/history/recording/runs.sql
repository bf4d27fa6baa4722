-- The runs of jobs, added to a file by a recorder that records them. In the order of `id` they
-- began. Older versions of incumbent leave the table alone.
CREATE TABLE IF NOT EXISTS run (
    id INTEGER PRIMARY KEY,
    -- By name: `election` may lose its rows.
    election TEXT NOT NULL,
    -- Counts the runs of the election. The missing ones were not recorded.
    number INTEGER NOT NULL,
    job TEXT NOT NULL,
    slot INTEGER NOT NULL,
    token INTEGER NOT NULL,
    -- begun, ended, or cut_short.
    state TEXT NOT NULL,
    code INTEGER,
    duration_ms INTEGER,
    -- When the recorder learned of the state, by the clock of its host.
    learned INTEGER NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS run_of_term ON run (election, job, slot, token);
