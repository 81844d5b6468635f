-- +goose Up
-- The identifiers by which people search clusters. They are in a table of their own, because each status update writes the
-- row of a cluster and would also write these indexes. Values are in lower case and compared as bytes, so that a prefix is a
-- range.
CREATE TABLE cluster_identifiers (
    cluster_uid  uuid PRIMARY KEY REFERENCES clusters (uid) ON DELETE CASCADE,
    resource_key text COLLATE "C" NOT NULL,
    name         text COLLATE "C" NOT NULL GENERATED ALWAYS AS (split_part(resource_key, '/', -1)) STORED,
    subscription text COLLATE "C" NOT NULL GENERATED ALWAYS AS (split_part(resource_key, '/', 3)) STORED,
    cluster_id   text COLLATE "C" NOT NULL,
    prefix       text COLLATE "C" NOT NULL,
    -- Of the API server's URL; empty until it is known.
    api_host     text COLLATE "C" NOT NULL,
    api_port     text COLLATE "C" NOT NULL
);
-- Lists are in order of UID. With the UID in the index, a page is read from its start.
CREATE INDEX cluster_identifiers_resource_key ON cluster_identifiers (resource_key);
CREATE INDEX cluster_identifiers_name ON cluster_identifiers (name, cluster_uid);
CREATE INDEX cluster_identifiers_subscription ON cluster_identifiers (subscription, cluster_uid);
CREATE INDEX cluster_identifiers_cluster_id ON cluster_identifiers (cluster_id);
CREATE INDEX cluster_identifiers_prefix ON cluster_identifiers (prefix);
CREATE INDEX cluster_identifiers_api_host ON cluster_identifiers (api_host, api_port, cluster_uid);
