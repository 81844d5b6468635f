package store_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/postgres"
	"github.com/hcpmesh/hcpmesh/internal/postgresserver"
)

// TestListenFollowsCertificate renews the certificate of a store that listens for notifications. It replaces its session before the
// certificate ends, and receives what is notified afterwards.
func TestListenFollowsCertificate(t *testing.T) {
	dir, err := os.MkdirTemp("", "hcpmesh-postgres-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	// The unprivileged user of the server needs search permission.
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	signer, err := mesh.OpenAuthority(filepath.Join(dir, "ca"), "local")
	if err != nil {
		t.Fatal(err)
	}
	folder := func(peer mesh.Peer) string { return filepath.Join(dir, string(peer)) }
	for _, peer := range []mesh.Peer{mesh.PostgreSQL, mesh.ClusterService} {
		if err := signer.Issue(folder(peer), peer, "127.0.0.1"); err != nil {
			t.Fatal(err)
		}
	}
	renew := func(lifetime time.Duration) {
		t.Helper()
		if err := signer.IssueFor(lifetime, folder(mesh.ClusterService), mesh.ClusterService); err != nil {
			t.Fatal(err)
		}
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
	if err := server.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	identity, err := mesh.LoadIdentity(folder(mesh.ClusterService))
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(store.Options{URL: server.URL("fleet", role), Authentication: postgres.Authentication{TLS: identity.ClientTLS(mesh.PostgreSQL)}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	// The session must begin within this lifetime.
	renew(20 * time.Second)
	woken := make(chan int64)
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
	await := func(want int64, what string) {
		t.Helper()
		select {
		case got := <-woken:
			if got != want {
				t.Fatalf("%s: woken for %d, want %d", what, got, want)
			}
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, ctx.Err())
		}
	}
	await(0, "the first session")
	renew(time.Hour)
	await(0, "the session after the renewal")
	administrator, err := postgres.Open(ctx, postgres.Options{URL: server.AdministratorURL("fleet"), Application: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer administrator.Close()
	if _, err := administrator.Exec(ctx, "SELECT pg_notify($1, '7')", store.Channel); err != nil {
		t.Fatal(err)
	}
	await(7, "a notification to the next session")
}
