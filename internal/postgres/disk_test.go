package postgres_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/hcpmesh/hcpmesh/internal/disk"
	"github.com/hcpmesh/hcpmesh/internal/postgres"
	"github.com/hcpmesh/hcpmesh/internal/postgresserver"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/smalldisk"
)

// TestPingReportsFullDisk is a regression test: a server whose disk is full answered the readiness checks of its services, which could
// store nothing.
func TestPingReportsFullDisk(t *testing.T) {
	smalldisk.Run(t, 256<<20, func(t *testing.T, dir string) {
		server := must.Get(postgresserver.Start(t.Context(), postgresserver.Options{DataDir: filepath.Join(dir, "server"), Throwaway: true}))(t)
		t.Cleanup(server.Kill)
		pool := open(t, server.AdministratorURL("postgres"))
		must.Get(pool.Exec(t.Context(), "CREATE TABLE rows (content text)"))(t)
		const insert = "INSERT INTO rows SELECT repeat('x', 1000) FROM generate_series(1, 100)"
		filler := smalldisk.Fill(t, dir)
		if err := postgres.Ping(t.Context(), pool); err != nil {
			t.Errorf("before a statement failed: %v", err)
		}
		if _, err := pool.Exec(t.Context(), insert); !postgres.IsUnavailable(err) {
			t.Fatalf("an insertion with a full disk: %v", err)
		}
		if err := postgres.Ping(t.Context(), pool); !errors.Is(err, disk.ErrFull) {
			t.Errorf("after a failed insertion: %v", err)
		}
		batched, batch := open(t, server.AdministratorURL("postgres")), &pgx.Batch{}
		batch.Queue(insert)
		if err := batched.SendBatch(t.Context(), batch).Close(); err == nil {
			t.Fatal("a batch succeeded with a full disk")
		}
		if err := postgres.Ping(t.Context(), batched); !errors.Is(err, disk.ErrFull) {
			t.Errorf("after a failed batch: %v", err)
		}
		must.Do(t, os.Remove(filler))
		if _, err := pool.Exec(t.Context(), insert); err != nil {
			t.Errorf("an insertion with free space: %v", err)
		}
	})
}

// TestFullDiskIsForgotten checks that a full disk is reported for a limited time. It runs on virtual time.
func TestFullDiskIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var watch postgres.DiskWatch
		watch.TraceQueryEnd(t.Context(), nil, pgx.TraceQueryEndData{Err: &pgconn.PgError{Code: "23505"}})
		if err := watch.Check(time.Now()); err != nil {
			t.Errorf("after another error: %v", err)
		}
		watch.TraceQueryEnd(t.Context(), nil, pgx.TraceQueryEndData{Err: &pgconn.PgError{Code: "53100"}})
		time.Sleep(29 * time.Second)
		if err := watch.Check(time.Now()); !errors.Is(err, disk.ErrFull) {
			t.Errorf("after 29 seconds: %v", err)
		}
		time.Sleep(time.Second)
		if err := watch.Check(time.Now()); err != nil {
			t.Errorf("after 30 seconds: %v", err)
		}
	})
}
