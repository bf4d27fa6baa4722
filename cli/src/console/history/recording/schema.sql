-- The file of `incumbent record`: the transitions of the elections of one lock.
-- Times are nanoseconds since 1970 in UTC, revisions and tokens the 64 bits of an unsigned number.

CREATE TABLE recording (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    -- The lock, as JSON; NULL before the first recorder has opened it.
    lock TEXT,
    -- Whether `time` is of the lock's own clock.
    has_lock_times INTEGER NOT NULL DEFAULT 0,
    -- What was learned up to this time may have been removed.
    removed_until INTEGER
);
INSERT INTO recording (id) VALUES (1);

CREATE TABLE election (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    -- As in `recording`, for its transitions.
    removed_until INTEGER
);

-- The fields of `election watch -o json`. In the order of `id` they were learned.
CREATE TABLE transition (
    id INTEGER PRIMARY KEY,
    election INTEGER NOT NULL REFERENCES election (id),
    revision INTEGER NOT NULL,
    time INTEGER NOT NULL,
    -- When the recorder learned of it, by the clock of its host.
    learned INTEGER NOT NULL,
    found INTEGER NOT NULL,
    -- NULL: there is no leader.
    leader TEXT,
    token INTEGER,
    since INTEGER,
    before TEXT,
    before_token INTEGER,
    cause TEXT,
    leaderless_ms INTEGER,
    unrenewed_ms INTEGER
);
CREATE INDEX transition_election ON transition (election, id);

-- The times in which every transition was seen, of these elections; NULL: of all.
CREATE TABLE observation (
    id INTEGER PRIMARY KEY,
    names TEXT,
    begin INTEGER NOT NULL,
    end INTEGER NOT NULL
);
