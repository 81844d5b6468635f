-- +goose Up
CREATE TABLE upgrades (
    uid         uuid        PRIMARY KEY,
    cluster_uid uuid        NOT NULL,
    spec        bytea       NOT NULL, -- hcpmesh.clusterservice.v1.UpgradeSpec
    status      bytea       NOT NULL, -- hcpmesh.clusterservice.v1.UpgradeStatus
    state       smallint    NOT NULL,
    -- The policy by which it began; empty for others. What is counted against limits.
    policy      text        NOT NULL,
    revision    bigint      NOT NULL,
    create_time timestamptz NOT NULL,
    -- When it may begin at last: the job to look at it then. Null when it waits for no time.
    due_time    timestamptz,
    gone_time   timestamptz
);
CREATE UNIQUE INDEX upgrades_revision ON upgrades (revision);
CREATE INDEX upgrades_cluster ON upgrades (cluster_uid);
CREATE INDEX upgrades_due ON upgrades (due_time) WHERE due_time IS NOT NULL;
CREATE INDEX upgrades_running ON upgrades (policy) WHERE gone_time IS NULL AND policy <> '';
CREATE INDEX upgrades_gone ON upgrades (gone_time) WHERE gone_time IS NOT NULL;

CREATE TABLE upgrade_policies (
    name        text        PRIMARY KEY,
    spec        bytea       NOT NULL, -- hcpmesh.clusterservice.v1.UpgradePolicySpec
    actor       bytea       NOT NULL, -- hcpmesh.clusterservice.v1.Actor
    create_time timestamptz NOT NULL,
    update_time timestamptz NOT NULL
);
