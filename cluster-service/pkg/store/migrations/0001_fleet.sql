-- +goose Up
-- The only row holds the last assigned revision. A transaction acquires its lock last and holds it until the commit, so
-- that revisions become visible in order. A watcher that has read a revision has seen all earlier ones.
CREATE TABLE revision_clock (
    single    boolean PRIMARY KEY DEFAULT true CHECK (single),
    revision  bigint  NOT NULL,
    -- Tombstones up to this revision may have been removed: a watcher with an older revision must list again.
    compacted bigint  NOT NULL DEFAULT 0
);
INSERT INTO revision_clock (revision) VALUES (0);

CREATE TABLE provision_shards (
    name     text    PRIMARY KEY,
    -- capacity as configured; capacity_override is an operator's, and wins.
    capacity          integer NOT NULL CHECK (capacity >= 0),
    capacity_override integer CHECK (capacity_override >= 0),
    cordoned boolean NOT NULL DEFAULT false,
    -- Shards that are no longer configured keep their clusters and get no new ones.
    configured boolean NOT NULL DEFAULT true,
    -- clusters is how many it holds, those being deleted included.
    clusters integer NOT NULL DEFAULT 0 CHECK (clusters >= 0)
);

CREATE TABLE clusters (
    uid             uuid        PRIMARY KEY,
    resource_id     text        NOT NULL,
    resource_key    text        NOT NULL, -- resource_id in lower case
    generation      bigint      NOT NULL,
    spec            bytea       NOT NULL, -- hcpmesh.clusterservice.v1.ClusterSpec
    status          bytea       NOT NULL, -- hcpmesh.clusterservice.v1.ClusterStatus
    phase           smallint    NOT NULL,
    prefix          text        NOT NULL,
    shard           text        REFERENCES provision_shards (name),
    release_version text        NOT NULL,
    release_image   text        NOT NULL,
    signing_key     bytea,                -- sealed under the secrets key
    revision        bigint      NOT NULL,
    create_time     timestamptz NOT NULL,
    delete_time     timestamptz,
    gone_time       timestamptz
);
CREATE UNIQUE INDEX clusters_resource_key ON clusters (resource_key) WHERE gone_time IS NULL;
CREATE UNIQUE INDEX clusters_prefix ON clusters (prefix) WHERE gone_time IS NULL AND prefix <> '';
CREATE UNIQUE INDEX clusters_revision ON clusters (revision);
CREATE INDEX clusters_shard ON clusters (shard) WHERE gone_time IS NULL;
CREATE INDEX clusters_pending ON clusters (create_time) WHERE shard IS NULL AND delete_time IS NULL;
CREATE INDEX clusters_gone ON clusters (gone_time) WHERE gone_time IS NOT NULL;

CREATE TABLE node_pools (
    uid             uuid        PRIMARY KEY,
    cluster_uid     uuid        NOT NULL, -- no reference: a tombstone may precede its cluster
    resource_id     text        NOT NULL,
    resource_key    text        NOT NULL,
    generation      bigint      NOT NULL,
    spec            bytea       NOT NULL, -- hcpmesh.clusterservice.v1.NodePoolSpec
    status          bytea       NOT NULL, -- hcpmesh.clusterservice.v1.NodePoolStatus
    phase           smallint    NOT NULL,
    release_version text        NOT NULL,
    release_image   text        NOT NULL,
    revision        bigint      NOT NULL,
    create_time     timestamptz NOT NULL,
    delete_time     timestamptz,
    gone_time       timestamptz
);
CREATE UNIQUE INDEX node_pools_resource_key ON node_pools (resource_key) WHERE gone_time IS NULL;
CREATE UNIQUE INDEX node_pools_revision ON node_pools (revision);
CREATE INDEX node_pools_cluster ON node_pools (cluster_uid);
CREATE INDEX node_pools_gone ON node_pools (gone_time) WHERE gone_time IS NOT NULL;

-- A work is a set of manifests for a management cluster, with the state of its delivery.
CREATE TABLE works (
    id               uuid        PRIMARY KEY, -- the Maestro resource id
    cluster_uid      uuid        NOT NULL,
    node_pool_uid    uuid,
    kind             smallint    NOT NULL,
    name             text        NOT NULL,
    shard            text        NOT NULL,
    desired          bigint      NOT NULL,
    published        bigint      NOT NULL,
    digest           text        NOT NULL,
    generation       bigint      NOT NULL,
    delete_time      timestamptz,
    delete_published boolean     NOT NULL,
    maestro_version  bigint      NOT NULL,
    sequence         text        NOT NULL,
    status_hash      text        NOT NULL,
    observed         bytea       NOT NULL, -- JSON
    attempts         integer     NOT NULL,
    -- When the job is due: null when there is nothing to do. Whoever takes it moves it ahead, which is the lease.
    due_time         timestamptz,
    error            text        NOT NULL,
    refused          boolean     NOT NULL
);
CREATE INDEX works_cluster ON works (cluster_uid);
CREATE INDEX works_due ON works (due_time) WHERE due_time IS NOT NULL;
