package store_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/postgres"
	"github.com/hcpmesh/hcpmesh/internal/postgresserver"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

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
