-- +goose Up
-- Consumers: the management clusters. agent_epoch counts the runs of a consumer's agent; a new run's sequence ids start
-- anew, whatever its clock says.
create table consumers (
    id          text primary key,
    name        text not null unique,
    labels      jsonb not null default '{}',
    agent_epoch bigint not null default 0,
    created_at  timestamptz not null default now(),
    updated_at  timestamptz not null default now()
);

create sequence status_revision;

-- Resources: manifest bundles and the newest status of each. content_hash is that of metadata and spec in canonical
-- form, by which a repeated request is recognised.
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
    -- The transaction that wrote the status: readers who follow the statuses read up to the oldest one still running.
    status_xid      xid8
);
create index resources_consumer on resources (consumer);
create index resources_source on resources (source);
create index resources_status_xid on resources (status_xid) where status_xid is not null;

create sequence delivery_order;

-- Deliveries: the outbox. A row stands for "the consumer's agent has not confirmed the newest version of this resource"
-- and commits together with that version. Lane 0 is new work, lane 1 what a resync brought up again.
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

-- Tombstones: what has been deleted and confirmed. They keep an id's versions growing over its lives, answer repeated
-- deletions, and are the only ground on which a work that is unknown to the server is deleted from an agent.
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
