-- +goose Up
CREATE TABLE external_auths (
    uid          uuid        PRIMARY KEY,
    cluster_uid  uuid        NOT NULL, -- no reference: a tombstone may precede its cluster
    resource_id  text        NOT NULL,
    resource_key text        NOT NULL,
    generation   bigint      NOT NULL,
    spec         bytea       NOT NULL, -- hcpmesh.clusterservice.v1.ExternalAuthSpec
    status       bytea       NOT NULL, -- hcpmesh.clusterservice.v1.ExternalAuthStatus
    phase        smallint    NOT NULL,
    revision     bigint      NOT NULL,
    create_time  timestamptz NOT NULL,
    delete_time  timestamptz,
    gone_time    timestamptz
);
CREATE UNIQUE INDEX external_auths_resource_key ON external_auths (resource_key) WHERE gone_time IS NULL;
CREATE UNIQUE INDEX external_auths_revision ON external_auths (revision);
-- A cluster has at most one that is not being deleted.
CREATE UNIQUE INDEX external_auths_wanted ON external_auths (cluster_uid) WHERE delete_time IS NULL;
CREATE INDEX external_auths_cluster ON external_auths (cluster_uid);
CREATE INDEX external_auths_gone ON external_auths (gone_time) WHERE gone_time IS NOT NULL;

CREATE TABLE break_glass_credentials (
    uid         uuid        PRIMARY KEY,
    cluster_uid uuid        NOT NULL,
    spec        bytea       NOT NULL, -- hcpmesh.clusterservice.v1.BreakGlassCredentialSpec
    status      bytea       NOT NULL, -- hcpmesh.clusterservice.v1.BreakGlassCredentialStatus: certificates, never a key
    state       smallint    NOT NULL,
    revision    bigint      NOT NULL,
    create_time timestamptz NOT NULL,
    -- When an issued certificate ends: the job to say so. Null in any other state.
    expire_time timestamptz,
    -- When it came to its end with nothing of it left on the management cluster.
    gone_time   timestamptz
);
CREATE UNIQUE INDEX break_glass_credentials_revision ON break_glass_credentials (revision);
CREATE INDEX break_glass_credentials_cluster ON break_glass_credentials (cluster_uid);
CREATE INDEX break_glass_credentials_expire ON break_glass_credentials (expire_time) WHERE expire_time IS NOT NULL;
CREATE INDEX break_glass_credentials_gone ON break_glass_credentials (gone_time) WHERE gone_time IS NOT NULL;

CREATE TABLE break_glass_revocations (
    uid         uuid        PRIMARY KEY,
    cluster_uid uuid        NOT NULL,
    class       smallint    NOT NULL,
    requester   text        NOT NULL,
    reason      text        NOT NULL,
    status      bytea       NOT NULL, -- hcpmesh.clusterservice.v1.BreakGlassRevocationStatus
    state       smallint    NOT NULL,
    revision    bigint      NOT NULL,
    create_time timestamptz NOT NULL,
    gone_time   timestamptz
);
CREATE UNIQUE INDEX break_glass_revocations_revision ON break_glass_revocations (revision);
CREATE INDEX break_glass_revocations_cluster ON break_glass_revocations (cluster_uid);
CREATE INDEX break_glass_revocations_gone ON break_glass_revocations (gone_time) WHERE gone_time IS NOT NULL;

-- A work can belong to a credential or a revocation, not only to a node pool.
ALTER TABLE works RENAME COLUMN node_pool_uid TO owner_uid;
