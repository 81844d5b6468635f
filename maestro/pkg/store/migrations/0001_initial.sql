-- +goose Up
-- Consumers are the management clusters. agent_epoch counts the runs of a consumer's agent. The sequence IDs of a new run are
-- newer than those of earlier runs, independent of the clock of the agent.
create table consumers (
    id          text primary key,
    name        text not null unique,
    labels      jsonb not null default '{}',
    agent_epoch bigint not null default 0,
    created_at  timestamptz not null default now(),
    updated_at  timestamptz not null default now()
);

create sequence status_revision;

-- Resources are manifest bundles with their newest status. content_hash is the hash of metadata and spec in canonical form. It
-- identifies repeated requests.
create table resources (
    id              text primary key,
    source          text not null,
    consumer        text not null references consumers (name) on delete restrict,
    version         bigint not null,
    metadata        jsonb,
    spec            bytea not null,
    tracing         text not null default '',
    content_hash    bytea not null,
    created_at      timestamptz not null default now(),
    updated_at      timestamptz not null default now(),
    deleted_at      timestamptz,
    status_version  bigint,
    status_agent    text,
    status_epoch    bigint,
    status_sequence bigint,
    status_hash     text,
    status_body     bytea,
    status_revision bigint,
    -- The transaction that wrote the status. Readers of new statuses read up to the oldest transaction that is still running.
    status_xid      xid8
);
create index resources_consumer on resources (consumer);
create index resources_source on resources (source);
create index resources_status_xid on resources (status_xid) where status_xid is not null;

create sequence delivery_order;

-- Deliveries are the outbox. A row means that the agent has not confirmed the newest version of a resource; it commits together
-- with that version. Lane 0 is new work, lane 1 is for the deliveries of a resync.
create table deliveries (
    resource_id text primary key references resources (id) on delete cascade,
    consumer    text not null,
    position    bigint not null default nextval('delivery_order'),
    lane        smallint not null default 0,
    due_at      timestamptz not null default now(),
    attempts    int not null default 0,
    parked      text
) with (fillfactor = 70);
create index deliveries_due on deliveries (consumer, lane, position) where parked is null;

-- Tombstones are confirmed deletions. They let the versions of an ID grow over all its incarnations and answer repeated
-- deletions. Only a tombstone allows the server to delete a work from an agent that it has no resource for.
create table tombstones (
    resource_id     text primary key,
    source          text not null,
    consumer        text not null,
    version         bigint not null,
    metadata        jsonb,
    tracing         text not null default '',
    deleted_at      timestamptz not null,
    confirmed_at    timestamptz not null default now(),
    status_agent    text not null,
    status_sequence bigint not null,
    status_body     bytea not null,
    status_revision bigint not null default nextval('status_revision'),
    status_xid      xid8 not null default pg_current_xact_id()
);
create index tombstones_consumer on tombstones (consumer);
create index tombstones_status_xid on tombstones (status_xid);
create index tombstones_confirmed on tombstones (confirmed_at);
