-- +goose Up
-- Of which run of the database server the newest revisions are, and the first of them. A server that was restored, or that
-- lost its last commits in a crash, has begun another run: what watchers were told since may never have been.
ALTER TABLE revision_clock
    ADD COLUMN server_started timestamptz NOT NULL DEFAULT '-infinity',
    ADD COLUMN began          bigint      NOT NULL DEFAULT 0;

-- Calls that have had their effect, by the id that the caller gave them: made again, they have none.
CREATE TABLE done_calls (
    id   text        PRIMARY KEY,
    time timestamptz NOT NULL
);
