-- +goose Up
-- What the shards file says of a shard; the override columns are an operator's, and win.
ALTER TABLE provision_shards
    ADD COLUMN zones                 text[] NOT NULL DEFAULT '{}',
    ADD COLUMN zones_override        text[],
    ADD COLUMN size_classes          text[] NOT NULL DEFAULT '{}',
    ADD COLUMN size_classes_override text[],
    ADD COLUMN labels                jsonb  NOT NULL DEFAULT '{}',
    ADD COLUMN labels_override       jsonb,
    -- Registered by an operator: stays whatever the file says. Deregistered: forgotten by one, until it is registered again;
    -- the row stays for the clusters' tombstones and the history.
    ADD COLUMN registered   boolean NOT NULL DEFAULT false,
    ADD COLUMN deregistered boolean NOT NULL DEFAULT false,
    -- Being drained is being cordoned for good.
    ADD COLUMN draining     boolean NOT NULL DEFAULT false CHECK (cordoned OR NOT draining),
    -- Who brought it into its state; JSON.
    ADD COLUMN state_actor  jsonb,
    ADD COLUMN state_time   timestamptz,
    -- Counts the changes by operators.
    ADD COLUMN version      bigint  NOT NULL DEFAULT 0,
    -- When its agent last reported something new; since when works have waited for it without a word, and how many do.
    ADD COLUMN heard_time   timestamptz,
    ADD COLUMN asked_time   timestamptz,
    ADD COLUMN unanswered   integer NOT NULL DEFAULT 0;

CREATE TABLE provision_shard_changes (
    shard   text        NOT NULL REFERENCES provision_shards (name),
    version bigint      NOT NULL,
    time    timestamptz NOT NULL,
    actor   jsonb       NOT NULL,
    action  text        NOT NULL,
    changes text[]      NOT NULL,
    PRIMARY KEY (shard, version)
);

-- The rules of one cluster, over the region's.
CREATE TABLE placement_policies (
    cluster_uid uuid        PRIMARY KEY REFERENCES clusters (uid) ON DELETE CASCADE,
    policy      jsonb       NOT NULL,
    actor       jsonb       NOT NULL,
    time        timestamptz NOT NULL
);

CREATE TABLE placement_decisions (
    cluster_uid uuid        NOT NULL REFERENCES clusters (uid) ON DELETE CASCADE,
    sequence    bigint      NOT NULL,
    decision    jsonb       NOT NULL,
    first_time  timestamptz NOT NULL,
    last_time   timestamptz NOT NULL,
    -- How often in a row it was made.
    count       integer     NOT NULL,
    PRIMARY KEY (cluster_uid, sequence)
);
