-- +goose Up
-- The last known update graph of each channel, used while the update graph service is unavailable.
CREATE TABLE update_graphs (
    channel text  PRIMARY KEY,
    body    bytea NOT NULL -- JSON
);
