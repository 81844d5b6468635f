-- +goose Up
-- The Azure resources of a cluster and the state of their creation or removal: one row per cluster until all are removed.
CREATE TABLE azure_resources (
    cluster_uid uuid        PRIMARY KEY,
    state       bytea       NOT NULL, -- JSON: the steps, each with how far it is
    -- When a step is due: null when none is. Whoever takes it moves it ahead, which is the lease.
    due_time    timestamptz
);
CREATE INDEX azure_resources_due ON azure_resources (due_time) WHERE due_time IS NOT NULL;
