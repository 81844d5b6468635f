-- +goose Up
-- What SREs have decided over what the customer asked for: hcpmesh.clusterservice.v1.ClusterOverrides.
ALTER TABLE clusters ADD COLUMN overrides bytea NOT NULL DEFAULT '';

-- What SREs had done to a cluster. The uid is the caller's: the same one has its effect once.
CREATE TABLE interventions (
    uid          uuid        PRIMARY KEY,
    cluster_uid  uuid        NOT NULL REFERENCES clusters (uid) ON DELETE CASCADE,
    time         timestamptz NOT NULL,
    intervention bytea       NOT NULL -- hcpmesh.clusterservice.v1.Intervention
);
CREATE INDEX interventions_cluster ON interventions (cluster_uid, time);
