package postgresserver

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/postgres"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// renew replaces the certificate of Cluster Service with one that is valid for a lifetime.
func (s *secured) renew(lifetime time.Duration) {
	s.t.Helper()
	authority := must.Get(mesh.OpenAuthority(filepath.Join(s.dir, "local", "ca"), "local"))(s.t)
	must.Do(s.t, authority.IssueFor(lifetime, filepath.Join(s.dir, "local", string(mesh.ClusterService)), mesh.ClusterService))
}

// service returns a pool of Cluster Service.
func (s *secured) service() *pgxpool.Pool {
	s.t.Helper()
	return s.open("clusterservice", "clusterservice", "local", mesh.ClusterService)
}

// session returns the ID of the session with which a pool executes a query.
func session(t *testing.T, pool *pgxpool.Pool) (id int) {
	t.Helper()
	must.Do(t, pool.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&id))
	return id
}

// testSessionOfPoolEndsWithItsCertificate renews the certificate of a client with open sessions.
func testSessionOfPoolEndsWithItsCertificate(t *testing.T, s *secured) {
	s.renew(time.Hour)
	pool := s.service()
	first := session(t, pool)
	if again := session(t, pool); again != first {
		t.Fatalf("the session %d was replaced by %d without a renewal", first, again)
	}
	s.renew(time.Hour)
	second := session(t, pool)
	if second == first {
		t.Error("the session with the former certificate is in use")
	}
	administrator := s.openURL(s.AdministratorURL(maintenance), postgres.Authentication{})
	eventually.Soon(t, "the session with the former certificate has ended", func() error {
		var open bool
		err := administrator.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)", first).Scan(&open)
		if err == nil && open {
			err = errors.New("it is open")
		}
		return err
	})
	if again := session(t, pool); again != second {
		t.Errorf("the session %d was replaced by %d without a renewal", second, again)
	}
}

// testLongSessionIsReplaced compares when a session must be replaced with the end of its certificate.
func testLongSessionIsReplaced(t *testing.T, s *secured) {
	s.renew(time.Hour)
	pool := s.service()
	s.renew(12 * time.Hour)
	identity := must.Get(mesh.LoadIdentity(filepath.Join(s.dir, "local", string(mesh.ClusterService))))(t)
	own := identity.Certificate().Leaf
	connection := must.Get(postgres.Connect(t.Context(), pool))(t)
	defer connection.Close(context.WithoutCancel(t.Context()))
	ctx, cancel := postgres.UntilCertificateEnds(t.Context(), connection)
	defer cancel()
	if at, limited := ctx.Deadline(); !limited || !at.Equal(own.NotAfter.Add(-own.NotAfter.Sub(own.NotBefore)/6)) {
		t.Errorf("the session is replaced at %s, %t, and its certificate ends at %s", at, limited, own.NotAfter)
	}

	var soon *pgx.Conn
	eventually.WithinLifetime(t, func(lifetime time.Duration) (err error) {
		s.renew(lifetime)
		soon, err = postgres.Connect(t.Context(), pool)
		return err
	})
	defer soon.Close(context.WithoutCancel(t.Context()))
	ctx, cancel = postgres.UntilCertificateEnds(t.Context(), soon)
	defer cancel()
	if _, err := soon.WaitForNotification(ctx); err == nil || !errors.Is(context.Cause(ctx), postgres.ErrCertificateEnds) {
		t.Errorf("the wait ended with %v, because of %v", err, context.Cause(ctx))
	}

	administrator := must.Get(pgx.Connect(t.Context(), s.AdministratorURL(maintenance)))(t)
	defer administrator.Close(context.WithoutCancel(t.Context()))
	ctx, cancel = postgres.UntilCertificateEnds(t.Context(), administrator)
	defer cancel()
	if at, limited := ctx.Deadline(); limited {
		t.Errorf("a session without a client certificate is replaced at %s", at)
	}
}

// testOldSessionsAreEnded opens a session with a certificate, as a thief does, and keeps it until the certificate has ended. Sessions of
// other roles stay open.
func testOldSessionsAreEnded(t *testing.T, s *secured) {
	s.renew(time.Hour)
	stolen, other := s.service(), s.open("maestro", "maestro", "local", mesh.MaestroServer)
	opened := time.Now() // no session can be older
	thief := must.Get(postgres.Connect(t.Context(), stolen))(t)
	defer thief.Close(context.WithoutCancel(t.Context()))
	bystander := session(t, other)
	eventually.Soon(t, "the session of the former certificate has ended", func() error {
		pool := s.service()
		defer pool.Close()
		var own *pgx.Conn
		var current time.Duration
		eventually.WithinLifetime(t, func(lifetime time.Duration) (err error) {
			current = lifetime
			s.renew(lifetime)
			own, err = postgres.Connect(t.Context(), pool)
			return err
		})
		defer own.Close(context.WithoutCancel(t.Context()))
		ended, err := postgres.EndOldSessions(t.Context(), own)
		switch {
		case err != nil:
			return err
		case time.Since(opened) < current && ended > 0:
			t.Fatalf("%d sessions were ended after %s", ended, time.Since(opened))
		case ended == 0:
			return fmt.Errorf("it is open after %s", time.Since(opened))
		}
		return nil
	})
	if err := thief.Ping(t.Context()); err == nil {
		t.Error("the session of the former certificate is open")
	}
	if again := session(t, other); again != bystander {
		t.Errorf("the session of another role was ended: %d, then %d", bystander, again)
	}
}
