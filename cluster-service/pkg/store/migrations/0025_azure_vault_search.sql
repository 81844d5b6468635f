-- +goose Up
-- The vault of the region is searched for certificates of no cluster.
INSERT INTO azure_searches (scope, due_time, complete_time) VALUES ('key-vault', now(), now());
