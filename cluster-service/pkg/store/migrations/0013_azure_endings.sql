-- +goose Up
-- The time at which the first of the cluster's certificates expires, and from when its renewal is overdue. Null without one.
ALTER TABLE azure_resources ADD COLUMN ends_time timestamptz, ADD COLUMN overdue_time timestamptz;
CREATE INDEX azure_resources_ends ON azure_resources (ends_time) WHERE ends_time IS NOT NULL;
CREATE INDEX azure_resources_overdue ON azure_resources (overdue_time) WHERE overdue_time IS NOT NULL;
-- For older certificates, the expiry is read from the vault.
UPDATE azure_resources SET due_time = now() WHERE due_time IS NULL
    AND position('"serving-certificate"' IN convert_from(state, 'UTF8')) > 0 AND position('"deleting":true' IN convert_from(state, 'UTF8')) = 0;
