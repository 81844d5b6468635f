-- +goose Up
-- The last known update graph of each channel, as it was served: what is gone by while the service that serves it is away.
CREATE TABLE update_graphs (
    channel text  PRIMARY KEY,
    body    bytea NOT NULL -- JSON
);
