-- +goose Up
-- What was made in Azure and ends: when the first of it does, and from when on its renewal is overdue. Null where nothing ends.
ALTER TABLE azure_resources ADD COLUMN ends_time timestamptz, ADD COLUMN overdue_time timestamptz;
CREATE INDEX azure_resources_ends ON azure_resources (ends_time) WHERE ends_time IS NOT NULL;
CREATE INDEX azure_resources_overdue ON azure_resources (overdue_time) WHERE overdue_time IS NOT NULL;
-- When the certificates end that were made before this was known is found out by looking at them.
UPDATE azure_resources SET due_time = now() WHERE due_time IS NULL
    AND position('"serving-certificate"' IN convert_from(state, 'UTF8')) > 0 AND position('"deleting":true' IN convert_from(state, 'UTF8')) = 0;
