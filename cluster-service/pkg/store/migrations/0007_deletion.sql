-- +goose Up
-- How often Maestro acknowledged a deletion, and the finalizers that the agent is told to take off what it waits for.
ALTER TABLE works ADD COLUMN delete_asks integer NOT NULL DEFAULT 0;
ALTER TABLE works ADD COLUMN release_finalizers text[] NOT NULL DEFAULT '{}';

-- The deletions of a tenancy that are under way: when the next step will be stuck, and the kinds of those that are. There
-- is a row only while there is something to say.
CREATE TABLE deletions (
    cluster_uid uuid        PRIMARY KEY,
    due_time    timestamptz,
    stuck       text[]      NOT NULL DEFAULT '{}'
);
CREATE INDEX deletions_due ON deletions (due_time) WHERE due_time IS NOT NULL;
CREATE INDEX deletions_stuck ON deletions (cluster_uid) WHERE stuck <> '{}';

-- Works whose deletion was forced: nobody waits for them, and they are asked to go until they have.
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
