-- +goose Up
-- The elevation whose credentials are revoked. Empty for the revocation of a whole class.
ALTER TABLE break_glass_revocations ADD COLUMN elevation text NOT NULL DEFAULT '';
