package postgres

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// PostgreSQL verifies a client certificate when a session begins, and has no setting that ends sessions. So the clients end their own: a
// session of a pool is closed when its certificate was replaced, and sessions that live long are replaced before their certificate ends.
// No session of ours is older than the lifetime of a certificate then, so EndOldSessions recognizes the sessions that others have opened.

// sessionAge is the age after which a session of a pool is closed, if it is idle. It bounds how long a session that is not used keeps a
// certificate that was replaced.
const sessionAge = time.Hour

// lastPart is the part of a certificate's lifetime, at its end, in which sessions that live long are replaced. Clients renew their
// certificate after two thirds.
const lastPart = 6

// ErrCertificateEnds is the cause of the end of a context of UntilCertificateEnds.
var ErrCertificateEnds = errors.New("the client certificate of the session ends")

// certificateKey is the key of the client certificate in the custom data of a session.
const certificateKey = "hcpmesh.certificate"

// recordCertificate makes the next session of a configuration store the client certificate that it presents.
func recordCertificate(config *pgconn.Config) {
	var presented *tls.Certificate
	record := func(c *tls.Config) {
		get := c.GetClientCertificate
		c.GetClientCertificate = func(request *tls.CertificateRequestInfo) (certificate *tls.Certificate, err error) {
			presented, err = get(request)
			return presented, err
		}
	}
	record(config.TLSConfig)
	for _, fallback := range config.Fallbacks {
		record(fallback.TLSConfig)
	}
	config.AfterConnect = func(_ context.Context, session *pgconn.PgConn) error {
		if presented != nil {
			session.CustomData()[certificateKey] = presented
		}
		return nil
	}
}

// certificateOf returns the client certificate that a session has presented, or nil.
func certificateOf(session *pgx.Conn) *tls.Certificate {
	certificate, _ := session.PgConn().CustomData()[certificateKey].(*tls.Certificate)
	return certificate
}

// hasCurrentCertificate reports whether a session has presented the certificate that the next one would present.
func hasCurrentCertificate(session *pgx.Conn, config *tls.Config) bool {
	own := certificateOf(session)
	if own == nil {
		return true
	}
	current, err := config.GetClientCertificate(&tls.CertificateRequestInfo{})
	return err != nil || bytes.Equal(current.Certificate[0], own.Certificate[0])
}

// UntilCertificateEnds returns a context that ends with the cause ErrCertificateEnds when a session that lives long must be replaced,
// because its client certificate ends soon. A session without a client certificate never must.
func UntilCertificateEnds(ctx context.Context, session *pgx.Conn) (context.Context, context.CancelFunc) {
	certificate := certificateOf(session)
	if certificate == nil {
		return context.WithCancel(ctx)
	}
	return context.WithDeadlineCause(ctx, replaceAt(certificate.Leaf, time.Now()), ErrCertificateEnds)
}

// replaceAt returns when a session with a certificate must be replaced. If that time has passed, because the certificate was not renewed
// in time, it is the certificate's end.
func replaceAt(certificate *x509.Certificate, now time.Time) time.Time {
	lifetime := certificate.NotAfter.Sub(certificate.NotBefore)
	if at := certificate.NotAfter.Add(-lifetime / lastPart); now.Before(at) {
		return at
	}
	return certificate.NotAfter
}

// EndOldSessions ends the sessions of the role of a session that are older than the lifetime of its client certificate, and returns their
// number. They were opened with certificates that have ended, by somebody who does not replace sessions.
func EndOldSessions(ctx context.Context, session *pgx.Conn) (ended int, err error) {
	certificate := certificateOf(session)
	if certificate == nil {
		return 0, nil
	}
	lifetime := certificate.Leaf.NotAfter.Sub(certificate.Leaf.NotBefore)
	err = session.QueryRow(ctx, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
		WHERE usename = current_user AND pid <> pg_backend_pid() AND backend_start < now() - make_interval(secs => $1)`, lifetime.Seconds()).Scan(&ended)
	if err != nil {
		return 0, fmt.Errorf("ending the sessions of former certificates: %w", err)
	}
	return ended, nil
}
