-- +goose Up
-- The storage account of the region is searched for OpenID documents of no cluster.
INSERT INTO azure_searches (scope, due_time, complete_time) VALUES ('oidc-documents', now(), now());
