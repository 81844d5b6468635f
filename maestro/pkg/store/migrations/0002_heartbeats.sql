-- +goose Up
-- The time of the last heartbeat of each consumer's agent. It is in a table of its own, because it changes often.
create table heartbeats (
    consumer text        primary key references consumers (name) on delete cascade,
    time     timestamptz not null
);
