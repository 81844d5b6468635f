-- +goose Up
-- When another client than the agent last removed an object of a cluster from its management cluster. The removals are in the status of
-- the cluster; this table finds the clusters with recent ones.
CREATE TABLE cluster_removals (
    cluster_uid uuid        PRIMARY KEY REFERENCES clusters (uid) ON DELETE CASCADE,
    time        timestamptz NOT NULL
);
CREATE INDEX cluster_removals_time ON cluster_removals (time);
