package store_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/postgres"
	"github.com/hcpmesh/hcpmesh/internal/postgresserver"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/postgrestest"
)

// TestSessionsSetTheirParameters reads the run-time parameters of a session.
func TestSessionsSetTheirParameters(t *testing.T) {
	s := open(t, store.Options{})
	for name, want := range postgres.Parameters() {
		if name != "idle_in_transaction_session_timeout" {
			continue // the others may be 0 over a socket that is not a network socket
		}
		if got, err := s.Setting(t.Context(), name); err != nil || got != want {
			t.Errorf("%s is %q, %v, want %q", name, got, err, want)
		}
	}
}

// TestStoppedProcessLosesItsLocks stops a process in a transaction, as when its machine is paused. Others do not wait for it, and
// its transaction fails with an error that a caller can retry.
func TestStoppedProcessLosesItsLocks(t *testing.T) {
	// The time-out must not end the migration and the second write, which a busy machine can interrupt.
	url := databases.Migrated(t, store.Migrations())
	s := must.Get(store.Open(store.Options{URL: postgrestest.RuntimeURL(t, url) + "&idle_in_transaction_session_timeout=2000"}))(t)
	t.Cleanup(s.Close)
	uid := uuid.NewString()
	stopped, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		attempts := 0
		err := s.Update(context.WithoutCancel(t.Context()), []string{uid}, func(context.Context, *store.Tx) error {
			if attempts++; attempts == 1 {
				close(stopped)
				<-goOn
			}
			return nil
		})
		ended <- err
	}()
	<-stopped
	must.Get(put(t.Context(), s, uid))(t)
	close(goOn)
	if err := <-ended; !store.IsUnavailable(err) {
		t.Errorf("the stopped transaction ended with %v, want an error that can be retried", err)
	}
}

// TestReadOnlyServerIsUnavailable makes the server reject writes, as when its disk is full.
func TestReadOnlyServerIsUnavailable(t *testing.T) {
	url := databases.Migrated(t, store.Migrations())
	first := open(t, store.Options{URL: url})
	if _, err := first.Clock(t.Context()); err != nil { // the first read of the clock writes to it
		t.Fatal(err)
	}
	direct := must.Get(pgx.Connect(t.Context(), url))(t)
	defer direct.Close(t.Context())
	must.Get(direct.Exec(t.Context(), fmt.Sprintf("ALTER DATABASE %s SET default_transaction_read_only = on", pgx.Identifier{direct.Config().Database}.Sanitize())))(t)
	s := must.Get(store.Open(store.Options{URL: url}))(t)
	defer s.Close()
	if _, err := s.Clock(t.Context()); err != nil {
		t.Errorf("reading: %v", err)
	}
	if _, err := put(t.Context(), s, uuid.NewString()); !store.IsUnavailable(err) {
		t.Errorf("writing: %v, want the error of an unavailable database", err)
	}
}

// TestPurgeDoesNotBlockCommits locks the row of a tombstone during a purge. A purge that waits for the row while it holds the clock
// would block all commits.
func TestPurgeDoesNotBlockCommits(t *testing.T) {
	s := open(t, store.Options{})
	ctx := t.Context()
	var uids []string
	for range 3 {
		uid := uuid.NewString()
		uids = append(uids, uid)
		must.Get(put(ctx, s, uid))(t)
		must.Do(t, update(ctx, s, uid, func(a *fleet.ClusterAggregate) {
			a.Cluster.DeleteTime, a.Cluster.GoneTime = s.Now().Add(-1), s.Now().Add(-1)
		}))
	}
	release := must.Get(s.LockRow(ctx, "clusters", uids[1]))(t)
	must.Do(t, s.Purge(ctx, s.Now()))
	must.Get(put(ctx, s, uuid.NewString()))(t)
	for i, uid := range uids {
		if _, err := s.Cluster(ctx, uid); (err == nil) != (i == 1) {
			t.Errorf("tombstone %d: %v", i, err)
		}
	}
	release()
	must.Do(t, s.Purge(ctx, s.Now()))
	if _, err := s.Cluster(ctx, uids[1]); err == nil {
		t.Error("the tombstone was not purged")
	}
	if clock, err := s.Clock(ctx); err != nil || clock.Compacted == 0 {
		t.Errorf("%+v, %v: a watcher could miss the purged deletions", clock, err)
	}
}

// shortestLifetime is the first lifetime of the certificate of TestListenFollowsCertificate.
const shortestLifetime = 2 * time.Second

// TestListenFollowsCertificate renews the certificate of a store that listens for notifications. It replaces its session before the
// certificate ends, and receives what is notified afterwards.
func TestListenFollowsCertificate(t *testing.T) {
	dir := must.Get(os.MkdirTemp("", "hcpmesh-postgres-"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	// The unprivileged user of the server needs search permission.
	must.Do(t, os.Chmod(dir, 0o755))
	signer := must.Get(mesh.OpenAuthority(filepath.Join(dir, "ca"), "local"))(t)
	folder := func(peer mesh.Peer) string { return filepath.Join(dir, string(peer)) }
	for _, peer := range []mesh.Peer{mesh.PostgreSQL, mesh.ClusterService} {
		must.Do(t, signer.Issue(folder(peer), peer, "127.0.0.1"))
	}
	renew := func(lifetime time.Duration) {
		t.Helper()
		must.Do(t, signer.IssueFor(lifetime, folder(mesh.ClusterService), mesh.ClusterService))
	}
	role := postgresserver.Role{Name: "service", Certificate: string(mesh.ClusterService)}
	server, err := postgresserver.Start(t.Context(), postgresserver.Options{DataDir: filepath.Join(dir, "server"), Throwaway: true,
		Databases: []postgresserver.Database{{Name: "fleet", Owner: postgresserver.Role{Name: "owner", Certificate: "owner"}, Runtime: role}},
		TLS: &postgresserver.TLS{CertificateFile: filepath.Join(folder(mesh.PostgreSQL), mesh.CertificateFile), KeyFile: filepath.Join(folder(mesh.PostgreSQL), mesh.KeyFile),
			CAFile: filepath.Join(folder(mesh.PostgreSQL), mesh.CAFile)}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Kill)
	must.Do(t, server.Provision(t.Context()))
	identity := must.Get(mesh.LoadIdentity(folder(mesh.ClusterService)))(t)
	s := must.Get(store.Open(store.Options{URL: server.URL("fleet", role), Authentication: postgres.Authentication{TLS: identity.ClientTLS(mesh.PostgreSQL)}}))(t)
	t.Cleanup(s.Close)

	ctx, cancel := eventually.Context(t)
	defer cancel()
	woken := make(chan int64)
	renew(shortestLifetime)
	var listening sync.WaitGroup
	listening.Go(func() {
		s.Listen(ctx, func(revision int64) {
			select {
			case woken <- revision:
			case <-ctx.Done():
			}
		})
	})
	defer listening.Wait()
	defer cancel()
	// A session begins within a lifetime, which is longer on a slow machine.
	for lifetime, began := shortestLifetime, false; !began; {
		select {
		case got := <-woken:
			if got != 0 {
				t.Fatalf("the first session: woken for %d", got)
			}
			began = true
		case <-time.After(lifetime):
			lifetime *= 2
			renew(lifetime)
		case <-ctx.Done():
			t.Fatalf("the first session: %v", ctx.Err())
		}
	}
	renew(time.Hour)
	next := must.Get(mesh.LoadIdentity(folder(mesh.ClusterService)))(t)
	administrator := must.Get(postgres.Open(ctx, postgres.Options{URL: server.AdministratorURL("fleet"), Application: "test"}))(t)
	defer administrator.Close()
	eventually.Soon(t, "a session with the next certificate receives a notification", func() error {
		// A value that is received while this is the certificate of the session was notified to the session.
		var current bool
		err := administrator.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE usename = $1 AND client_serial = $2::numeric)",
			role.Name, next.Certificate().Leaf.SerialNumber.String()).Scan(&current)
		if err == nil {
			_, err = administrator.Exec(ctx, "SELECT pg_notify($1, '7')", store.Channel)
		}
		if err != nil {
			return err
		}
		select {
		case got := <-woken:
			if got == 7 && current {
				return nil
			}
			return fmt.Errorf("woken for %d; the session has the next certificate: %t", got, current)
		default:
			return fmt.Errorf("not woken; the session has the next certificate: %t", current)
		}
	})
}
