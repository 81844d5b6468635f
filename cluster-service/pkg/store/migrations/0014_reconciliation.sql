-- +goose Up
-- Works whose deletion was confirmed, by the id that Maestro knows them by: should one come up again, it may be removed. What is
-- neither a work nor in here may be of a cluster that this database lost, and is all that there is of it.
CREATE TABLE removed_works (
    id          uuid        PRIMARY KEY,
    cluster_uid uuid        NOT NULL,
    time        timestamptz NOT NULL
);
CREATE INDEX removed_works_time ON removed_works (time);

-- Of which database the newest revisions are: a copy of one has another oid, also when its server ran all the time.
ALTER TABLE revision_clock ADD COLUMN database_oid oid NOT NULL DEFAULT 0;

-- What there is, in order of resource id by bytes, which is the order that Cosmos DB lists in.
CREATE INDEX clusters_inventory ON clusters (resource_key COLLATE "C") WHERE gone_time IS NULL;
CREATE INDEX node_pools_inventory ON node_pools (resource_key COLLATE "C") WHERE gone_time IS NULL;
CREATE INDEX external_auths_inventory ON external_auths (resource_key COLLATE "C") WHERE gone_time IS NULL;
