-- +goose Up
-- The overrides that SREs have set on a cluster: hcpmesh.clusterservice.v1.ClusterOverrides.
ALTER TABLE clusters ADD COLUMN overrides bytea NOT NULL DEFAULT '';

-- The actions of SREs on clusters. The caller chooses the UID: an action takes effect once per UID.
CREATE TABLE cluster_actions (
    uid         uuid        PRIMARY KEY,
    cluster_uid uuid        NOT NULL REFERENCES clusters (uid) ON DELETE CASCADE,
    time        timestamptz NOT NULL,
    action      bytea       NOT NULL -- hcpmesh.clusterservice.v1.ClusterAction
);
CREATE INDEX cluster_actions_cluster ON cluster_actions (cluster_uid, time);
