-- +goose Up
-- The clusters in CLUSTER_PHASE_LOST, which are counted often and are few.
CREATE INDEX clusters_lost ON clusters (uid) WHERE phase = 8;
