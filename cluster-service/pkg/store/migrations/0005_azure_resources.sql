-- +goose Up
-- What a cluster has in Azure, and the job to make or remove it: one row per cluster, until nothing is left.
CREATE TABLE azure_resources (
    cluster_uid uuid        PRIMARY KEY,
    state       bytea       NOT NULL, -- JSON: the steps, each with how far it is
    -- When a step is due: null when none is. Whoever takes it moves it ahead, which is the lease.
    due_time    timestamptz
);
CREATE INDEX azure_resources_due ON azure_resources (due_time) WHERE due_time IS NOT NULL;
