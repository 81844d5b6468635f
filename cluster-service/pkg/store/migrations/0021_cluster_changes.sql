-- +goose Up
-- The changes of clusters and their children: hcpmesh.clusterservice.v1.ClusterChange.
CREATE TABLE cluster_changes (
    cluster_uid uuid        NOT NULL REFERENCES clusters (uid) ON DELETE CASCADE,
    sequence    bigint      GENERATED ALWAYS AS IDENTITY,
    time        timestamptz NOT NULL,
    change      bytea       NOT NULL,
    PRIMARY KEY (cluster_uid, sequence)
);
CREATE INDEX cluster_changes_time ON cluster_changes (time);
