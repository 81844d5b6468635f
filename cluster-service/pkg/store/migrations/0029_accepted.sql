-- +goose Up
-- The desired state that the management cluster accepted last, as JSON, while it has not accepted that of the generation; NULL otherwise.
ALTER TABLE clusters ADD COLUMN accepted bytea;
ALTER TABLE node_pools ADD COLUMN accepted bytea;
ALTER TABLE external_auths ADD COLUMN accepted bytea;
