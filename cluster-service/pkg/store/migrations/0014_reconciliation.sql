-- +goose Up
-- Works whose deletion was confirmed, by bundle ID. A bundle with a deletion record that appears again may be deleted. A
-- bundle that is neither a work nor recorded here may belong to a cluster that this database has lost, and must be kept.
CREATE TABLE removed_works (
    id          uuid        PRIMARY KEY,
    cluster_uid uuid        NOT NULL,
    time        timestamptz NOT NULL
);
CREATE INDEX removed_works_time ON removed_works (time);

-- The database of the newest revisions: a copy has another OID, even if the server was never restarted.
ALTER TABLE revision_clock ADD COLUMN database_oid oid NOT NULL DEFAULT 0;

-- Resources in order of the bytes of the resource ID, which is the order of lists in Cosmos DB.
CREATE INDEX clusters_inventory ON clusters (resource_key COLLATE "C") WHERE gone_time IS NULL;
CREATE INDEX node_pools_inventory ON node_pools (resource_key COLLATE "C") WHERE gone_time IS NULL;
CREATE INDEX external_auths_inventory ON external_auths (resource_key COLLATE "C") WHERE gone_time IS NULL;
