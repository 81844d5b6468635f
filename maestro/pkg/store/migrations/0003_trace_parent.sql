-- +goose Up
-- The W3C trace context of the request that the newest version was published for; empty if there is none.
alter table resources add column trace_parent text not null default '';
