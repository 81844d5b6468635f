-- +goose Up
-- The zone of the region is searched for record sets of no cluster, like the subscriptions of customers.
INSERT INTO azure_searches (scope, due_time, complete_time) VALUES ('dns-zone', now(), now());
