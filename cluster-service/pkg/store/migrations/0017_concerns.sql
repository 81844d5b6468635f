-- +goose Up
-- What each cluster that is not in its desired state waits for. Each cluster has a row, so that clusters of an earlier release can
-- be found; a cluster in its desired state has an empty layer and is not part of the index. The table is separate from clusters,
-- because each status update writes the row of a cluster and would also write this index.
CREATE TABLE cluster_concerns (
    cluster_uid uuid        PRIMARY KEY REFERENCES clusters (uid) ON DELETE CASCADE,
    subject_id  text        NOT NULL,
    layer       text        NOT NULL,
    state       text        NOT NULL,
    since       timestamptz NOT NULL
);
CREATE INDEX cluster_concerns_since ON cluster_concerns (since, cluster_uid) WHERE layer <> '';
