-- +goose Up
-- Where resources of clusters can be in Azure: for now, the subscriptions of customers. Each scope is searched for resources of no
-- cluster. A scope remains after its last cluster, because its resources can too. due_time is the time of the next search, or the end
-- of the lease of the current one.
CREATE TABLE azure_searches (
    scope         text        PRIMARY KEY,
    due_time      timestamptz NOT NULL,
    complete_time timestamptz NOT NULL -- the end of the last complete search; before the first one, the time since which it is due
);
CREATE INDEX azure_searches_due ON azure_searches (due_time);

-- Resources in Azure that belong to no cluster. A complete search of the scope deletes the rows of resources that it did not find.
CREATE TABLE azure_orphans (
    uid                 uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
    scope               text        NOT NULL,
    kind                text        NOT NULL,
    azure_id            text        NOT NULL,
    azure_key           text        NOT NULL UNIQUE, -- azure_id in lower case
    cluster_uid         text        NOT NULL, -- what the resource names as the UID of its cluster; empty if it names none
    cluster_resource_id text        NOT NULL, -- what the resource names as the resource ID of its cluster; empty if it names none
    evidence            text        NOT NULL, -- why it is believed to be a cluster's
    proof               text        NOT NULL, -- the proof that its cluster is deleted; empty without one
    first_time          timestamptz NOT NULL,
    last_time           timestamptz NOT NULL
);
CREATE INDEX azure_orphans_scope ON azure_orphans (scope, last_time);

-- A trigger writes the scopes, so that they are complete while processes of the previous release run.
-- +goose StatementBegin
CREATE FUNCTION write_azure_search() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO azure_searches (scope, due_time, complete_time) VALUES (split_part(NEW.resource_key, '/', 3), NEW.create_time, NEW.create_time) ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER cluster_subscription AFTER INSERT ON clusters FOR EACH ROW EXECUTE FUNCTION write_azure_search();

INSERT INTO azure_searches (scope, due_time, complete_time) SELECT DISTINCT split_part(resource_key, '/', 3), now(), now() FROM clusters;
