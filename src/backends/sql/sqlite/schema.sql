-- One row per election. The row stays when its holder has gone, so that revisions, and with them
-- tokens, never go back.
CREATE TABLE IF NOT EXISTS incumbent_elections (
    name              TEXT PRIMARY KEY NOT NULL CHECK (name <> ''),
    -- For people. NULL: there is no leader.
    holder            TEXT,
    acquired_at       TEXT,
    renewed_at        TEXT,
    -- How long after renewed_at others must wait for the holder.
    lease_duration_ms INTEGER NOT NULL,
    -- How often the leader has changed.
    transitions       INTEGER NOT NULL DEFAULT 0,
    -- Grows with every write.
    revision          INTEGER NOT NULL,
    -- Where the leader can be reached, its priority and site, and the pause of the election, in JSON.
    advertised        TEXT,
    -- The revision of the write that began the term.
    token             INTEGER,
    -- Which candidate wrote this, and which of its writes it was.
    nonce             TEXT,
    write             INTEGER,
    -- Of a release: the candidate that released, the rest of its own wait, and the cause.
    released_by       TEXT,
    released_left_ms  INTEGER,
    released_cause    TEXT,
    released_to       TEXT,
    -- When this was written, on the clock that starts at the machine's boot, and the identifier of that boot.
    boot              TEXT,
    boot_ms           INTEGER
);

CREATE TABLE IF NOT EXISTS incumbent_settings (
    single           INTEGER PRIMARY KEY CHECK (single = 1),
    version          INTEGER NOT NULL,
    -- The maximum lease. Change it only while there is no candidate.
    longest_lease_ms INTEGER NOT NULL CHECK (longest_lease_ms >= 1000),
    created_at       TEXT NOT NULL,
    boot             TEXT,
    boot_ms          INTEGER
);

-- What each term of an election leaves to the next. It stays until somebody deletes it.
CREATE TABLE IF NOT EXISTS incumbent_checkpoints (
    name       TEXT PRIMARY KEY NOT NULL CHECK (name <> ''),
    -- Another one with every write, drawn at random.
    version    INTEGER NOT NULL,
    -- A line of JSON, and the data.
    content    BLOB NOT NULL,
    written_at TEXT NOT NULL
);

-- An update by hand is a write too: it gets a revision of its own, and the candidate's mark, which belongs to an earlier
-- write, is removed.
CREATE TRIGGER IF NOT EXISTS incumbent_guard AFTER UPDATE ON incumbent_elections
    WHEN NEW.revision <= OLD.revision
BEGIN
    UPDATE incumbent_elections SET
        revision = OLD.revision + 1, renewed_at = strftime('%Y-%m-%dT%H:%M:%fZ'), token = NULL,
        nonce = NULL, write = NULL, released_by = NULL, released_left_ms = NULL,
        released_cause = NULL, released_to = NULL, boot = NULL, boot_ms = NULL
    WHERE name = NEW.name;
END;

CREATE TRIGGER IF NOT EXISTS incumbent_keep BEFORE DELETE ON incumbent_elections
BEGIN
    UPDATE incumbent_elections SET holder = NULL WHERE name = OLD.name;
    SELECT RAISE(IGNORE);
END;
