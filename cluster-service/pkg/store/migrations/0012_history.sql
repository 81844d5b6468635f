-- +goose Up
-- The run of the database server that assigned the newest revisions, and the first of them. A server that was restored, or
-- that lost its last commits in a crash, starts another run: watchers may have received revisions that no longer exist.
ALTER TABLE revision_clock
    ADD COLUMN server_started timestamptz NOT NULL DEFAULT '-infinity',
    ADD COLUMN began          bigint      NOT NULL DEFAULT 0;

-- The calls that have taken effect, by the ID that the caller chose. A repeated call has no effect.
CREATE TABLE done_calls (
    id   text        PRIMARY KEY,
    time timestamptz NOT NULL
);
