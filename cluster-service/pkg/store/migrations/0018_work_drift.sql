-- +goose Up
-- How the layers below Cluster Service differ from a work; empty if they do not. The index holds only the works that differ.
ALTER TABLE works ADD COLUMN drift text NOT NULL DEFAULT '';
CREATE INDEX works_drift ON works (id) WHERE drift <> '';
