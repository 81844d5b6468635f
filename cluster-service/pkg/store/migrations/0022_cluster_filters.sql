-- +goose Up
-- What people filter lists of clusters by. It is in a table of its own, because each status update writes the row of a cluster and
-- would also write these indexes. Triggers write the table, so that it is correct while processes of the previous release run.
CREATE TABLE cluster_filters (
    cluster_uid uuid     PRIMARY KEY REFERENCES clusters (uid) ON DELETE CASCADE,
    phase       smallint NOT NULL,
    version     text COLLATE "C" NOT NULL,
    minor       text COLLATE "C" NOT NULL GENERATED ALWAYS AS (split_part(version, '.', 1) || '.' || split_part(version, '.', 2)) STORED
);
-- Lists are in order of UID. With the UID in the index, a page is read from its start.
CREATE INDEX cluster_filters_phase ON cluster_filters (phase, cluster_uid);
CREATE INDEX cluster_filters_version ON cluster_filters (version, cluster_uid);
CREATE INDEX cluster_filters_minor ON cluster_filters (minor, cluster_uid);

-- +goose StatementBegin
CREATE FUNCTION write_cluster_filters() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO cluster_filters (cluster_uid, phase, version) VALUES (NEW.uid, NEW.phase, NEW.release_version)
        ON CONFLICT (cluster_uid) DO UPDATE SET phase = excluded.phase, version = excluded.version;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER cluster_inserted AFTER INSERT ON clusters FOR EACH ROW EXECUTE FUNCTION write_cluster_filters();
CREATE TRIGGER cluster_updated AFTER UPDATE OF phase, release_version ON clusters FOR EACH ROW
    WHEN ((OLD.phase, OLD.release_version) IS DISTINCT FROM (NEW.phase, NEW.release_version)) EXECUTE FUNCTION write_cluster_filters();

INSERT INTO cluster_filters (cluster_uid, phase, version) SELECT uid, phase, release_version FROM clusters;
