-- +goose Up
-- The signatures of accepted releases, used while the store of signatures is unavailable. They are verified when they are read.
CREATE TABLE release_signatures (
    digest  text  PRIMARY KEY,
    message bytea NOT NULL -- OpenPGP
);
