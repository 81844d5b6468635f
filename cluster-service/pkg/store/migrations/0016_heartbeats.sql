-- +goose Up
-- The time of the last heartbeat of the shard's agent.
ALTER TABLE provision_shards ADD COLUMN heartbeat_time timestamptz;
