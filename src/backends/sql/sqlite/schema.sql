-- One row an election. It stays when its holder has gone, so that revisions, and with them tokens, never go back.
CREATE TABLE IF NOT EXISTS incumbent_elections (
    name              TEXT PRIMARY KEY NOT NULL CHECK (name <> ''),
    -- What people read. NULL: nobody holds the election.
    holder            TEXT,
    acquired_at       TEXT,
    renewed_at        TEXT,
    -- For how long after renewed_at the holder must be waited for.
    lease_duration_ms INTEGER NOT NULL,
    -- How often the election has changed hands.
    transitions       INTEGER NOT NULL DEFAULT 0,
    -- Every write has a greater one.
    revision          INTEGER NOT NULL,
    -- Where the leader can be reached, in JSON.
    advertised        TEXT,
    -- The revision of the write that began the term.
    token             INTEGER,
    -- Which campaigner wrote this, and which of its writes it was.
    nonce             TEXT,
    write             INTEGER,
    -- Of a release: which campaigner it was, what was left of its own wait, and why it went.
    released_by       TEXT,
    released_left_ms  INTEGER,
    released_cause    TEXT,
    -- When this was written, on the clock that begins with the machine, and which start of the machine that was.
    boot              TEXT,
    boot_ms           INTEGER
);

CREATE TABLE IF NOT EXISTS incumbent_settings (
    single           INTEGER PRIMARY KEY CHECK (single = 1),
    version          INTEGER NOT NULL,
    -- No lease may be longer. Change it only while nobody campaigns.
    longest_lease_ms INTEGER NOT NULL CHECK (longest_lease_ms >= 1000),
    created_at       TEXT NOT NULL,
    boot             TEXT,
    boot_ms          INTEGER
);

-- What is written by hand is a write too: it gets a revision of its own, and the campaigner's mark, which is not of this
-- write, goes.
CREATE TRIGGER IF NOT EXISTS incumbent_guard AFTER UPDATE ON incumbent_elections
    WHEN NEW.revision <= OLD.revision
BEGIN
    UPDATE incumbent_elections SET
        revision = OLD.revision + 1, renewed_at = strftime('%Y-%m-%dT%H:%M:%fZ'), token = NULL,
        nonce = NULL, write = NULL, released_by = NULL, released_left_ms = NULL,
        released_cause = NULL, boot = NULL, boot_ms = NULL
    WHERE name = NEW.name;
END;

CREATE TRIGGER IF NOT EXISTS incumbent_keep BEFORE DELETE ON incumbent_elections
BEGIN
    UPDATE incumbent_elections SET holder = NULL WHERE name = OLD.name;
    SELECT RAISE(IGNORE);
END;
