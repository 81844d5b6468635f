-- +goose Up
-- The settings of the shards file. The override columns hold those of operators, which take precedence.
ALTER TABLE provision_shards
    ADD COLUMN zones                 text[] NOT NULL DEFAULT '{}',
    ADD COLUMN zones_override        text[],
    ADD COLUMN size_classes          text[] NOT NULL DEFAULT '{}',
    ADD COLUMN size_classes_override text[],
    ADD COLUMN labels                jsonb  NOT NULL DEFAULT '{}',
    ADD COLUMN labels_override       jsonb,
    -- registered: by an operator, independent of the file. deregistered: by an operator, until it is registered again; the row
    -- stays for the tombstones of clusters and for the history.
    ADD COLUMN registered   boolean NOT NULL DEFAULT false,
    ADD COLUMN deregistered boolean NOT NULL DEFAULT false,
    -- A drained shard stays cordoned.
    ADD COLUMN draining     boolean NOT NULL DEFAULT false CHECK (cordoned OR NOT draining),
    -- The actor of the last change of state, as JSON.
    ADD COLUMN state_actor  jsonb,
    ADD COLUMN state_time   timestamptz,
    -- The number of changes by operators.
    ADD COLUMN version      bigint  NOT NULL DEFAULT 0,
    -- The time of the agent's last report; the time since when works wait for a report, and their number.
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

-- The placement policies of single clusters, which take precedence over the region's rules.
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
