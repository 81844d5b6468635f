-- +goose Up
-- The number of acknowledged deletion requests, and the finalizers that the agent has to remove.
ALTER TABLE works ADD COLUMN delete_asks integer NOT NULL DEFAULT 0;
ALTER TABLE works ADD COLUMN release_finalizers text[] NOT NULL DEFAULT '{}';

-- The deletions in progress in a cluster aggregate: the time at which the next step counts as stuck, and the kinds of the
-- stuck steps. There is a row only while one of them is set.
CREATE TABLE deletions (
    cluster_uid uuid        PRIMARY KEY,
    due_time    timestamptz,
    stuck       text[]      NOT NULL DEFAULT '{}'
);
CREATE INDEX deletions_due ON deletions (due_time) WHERE due_time IS NOT NULL;
CREATE INDEX deletions_stuck ON deletions (cluster_uid) WHERE stuck <> '{}';

-- Works of forced deletion steps. Their deletion is requested until it is confirmed.
CREATE TABLE deletion_leftovers (
    work_id     uuid        PRIMARY KEY, -- the Maestro resource id
    work        text        NOT NULL,
    shard       text        NOT NULL,
    cluster_uid uuid        NOT NULL,
    step        text        NOT NULL,
    force       bytea       NOT NULL, -- hcpmesh.clusterservice.v1.DeletionForce
    force_time  timestamptz NOT NULL,
    release_finalizers text[] NOT NULL DEFAULT '{}',
    attempts    integer     NOT NULL DEFAULT 0,
    -- When it is next asked to go, and the lease of whoever does; null when it has gone.
    due_time    timestamptz,
    gone_time   timestamptz
);
CREATE INDEX deletion_leftovers_due ON deletion_leftovers (due_time) WHERE due_time IS NOT NULL;
CREATE INDEX deletion_leftovers_cluster ON deletion_leftovers (cluster_uid);
