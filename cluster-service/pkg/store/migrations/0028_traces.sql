-- +goose Up
-- The W3C traceparent of the request that set the generation of a resource or requested its deletion; empty if its trace is not recorded.
ALTER TABLE clusters ADD COLUMN trace text NOT NULL DEFAULT '';
ALTER TABLE node_pools ADD COLUMN trace text NOT NULL DEFAULT '';
