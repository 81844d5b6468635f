package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
)

// accessChanges queues the writes of changed external authentications, credentials and revocations.
func accessChanges(old, aggregate *fleet.ClusterAggregate) []func(batch *pgx.Batch, behind int64) {
	var changed []func(batch *pgx.Batch, behind int64)
	for _, a := range aggregate.ExternalAuths {
		if authChanged(old.ExternalAuthByUID(a.UID), a) {
			changed = append(changed, func(batch *pgx.Batch, behind int64) { queueAuth(batch, a, behind) })
		}
	}
	for _, c := range aggregate.Credentials {
		if before := old.Credential(c.UID); before == nil || !before.GoneTime.Equal(c.GoneTime) || !proto.Equal(before.Status, c.Status) {
			changed = append(changed, func(batch *pgx.Batch, behind int64) { queueCredential(batch, c, behind) })
		}
	}
	for _, v := range aggregate.Revocations {
		if before := old.Revocation(v.UID); before == nil || !before.GoneTime.Equal(v.GoneTime) || !proto.Equal(before.Status, v.Status) {
			changed = append(changed, func(batch *pgx.Batch, behind int64) { queueRevocation(batch, v, behind) })
		}
	}
	return changed
}

func authChanged(a, b *fleet.ExternalAuth) bool {
	return a == nil || a.Generation != b.Generation || !a.DeleteTime.Equal(b.DeleteTime) || !a.GoneTime.Equal(b.GoneTime) ||
		!proto.Equal(a.Status, b.Status) || !proto.Equal(a.Spec, b.Spec) || a.Update != b.Update
}

func queueAuth(batch *pgx.Batch, a *fleet.ExternalAuth, behind int64) {
	batch.Queue(`INSERT INTO external_auths (uid, cluster_uid, resource_id, resource_key, generation, spec, status, phase, create_time,
			delete_time, gone_time, revision, accepted)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, (SELECT revision FROM revision_clock) - $12, $13)
		ON CONFLICT (uid) DO UPDATE SET generation = $5, spec = $6, status = $7, phase = $8, delete_time = $10, gone_time = $11,
			revision = excluded.revision, accepted = $13
		RETURNING revision`,
		a.UID, a.ClusterUID, a.ResourceID, strings.ToLower(a.ResourceID), a.Generation, encode(a.RequestedSpec()), encode(a.Status), int16(a.Status.GetPhase()),
		a.CreateTime, nullTime(a.DeleteTime), nullTime(a.GoneTime), behind, encodeUpdate(a.Update, a.Generation)).
		QueryRow(func(row pgx.Row) error { return row.Scan(&a.Revision) })
}

func queueCredential(batch *pgx.Batch, c *fleet.Credential, behind int64) {
	batch.Queue(`INSERT INTO break_glass_credentials (uid, cluster_uid, spec, status, state, create_time, expire_time, gone_time, revision)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, (SELECT revision FROM revision_clock) - $9)
		ON CONFLICT (uid) DO UPDATE SET status = $4, state = $5, expire_time = $7, gone_time = $8, revision = excluded.revision
		RETURNING revision`,
		c.UID, c.ClusterUID, encode(c.Spec), encode(c.Status), int16(c.State()), c.CreateTime, nullTime(c.ExpireTime()), nullTime(c.GoneTime), behind).
		QueryRow(func(row pgx.Row) error { return row.Scan(&c.Revision) })
}

func queueRevocation(batch *pgx.Batch, v *fleet.Revocation, behind int64) {
	batch.Queue(`INSERT INTO break_glass_revocations (uid, cluster_uid, class, requester, reason, status, state, create_time, gone_time, elevation, revision)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, (SELECT revision FROM revision_clock) - $11)
		ON CONFLICT (uid) DO UPDATE SET status = $6, state = $7, gone_time = $9, revision = excluded.revision
		RETURNING revision`,
		v.UID, v.ClusterUID, int16(v.Class), v.Requester, v.Reason, encode(v.Status), int16(v.Status.GetState()), v.CreateTime, nullTime(v.GoneTime), v.Elevation, behind).
		QueryRow(func(row pgx.Row) error { return row.Scan(&v.Revision) })
}

func scanAuth(row pgx.CollectableRow) (*fleet.ExternalAuth, error) {
	a := &fleet.ExternalAuth{Spec: &csv1.ExternalAuthSpec{}, Status: &csv1.ExternalAuthStatus{}}
	var spec, status, accepted []byte
	var deleted, gone *time.Time
	if err := row.Scan(&a.UID, &a.ClusterUID, &a.ResourceID, &a.Generation, &spec, &status, &a.Revision, &a.CreateTime, &deleted, &gone, &accepted); err != nil {
		return nil, err
	}
	a.CreateTime, a.DeleteTime, a.GoneTime = a.CreateTime.UTC(), notNull(deleted), notNull(gone)
	if err := proto.Unmarshal(spec, a.Spec); err != nil {
		return nil, fmt.Errorf("decoding the spec of external auth %s: %w", a.UID, err)
	}
	if err := proto.Unmarshal(status, a.Status); err != nil {
		return nil, fmt.Errorf("decoding the status of external auth %s: %w", a.UID, err)
	}
	return a, decodeUpdate(accepted, a.UID, a.Generation, &a.Update, &a.Spec)
}

func scanCredential(row pgx.CollectableRow) (*fleet.Credential, error) {
	c := &fleet.Credential{Spec: &csv1.BreakGlassCredentialSpec{}, Status: &csv1.BreakGlassCredentialStatus{}}
	var spec, status []byte
	var gone *time.Time
	if err := row.Scan(&c.UID, &c.ClusterUID, &spec, &status, &c.Revision, &c.CreateTime, &gone); err != nil {
		return nil, err
	}
	c.CreateTime, c.GoneTime = c.CreateTime.UTC(), notNull(gone)
	if err := proto.Unmarshal(spec, c.Spec); err != nil {
		return nil, fmt.Errorf("decoding the spec of credential %s: %w", c.UID, err)
	}
	if err := proto.Unmarshal(status, c.Status); err != nil {
		return nil, fmt.Errorf("decoding the status of credential %s: %w", c.UID, err)
	}
	return c, knownClass("credential "+c.UID, c.Spec.GetClass())
}

func scanRevocation(row pgx.CollectableRow) (*fleet.Revocation, error) {
	v := &fleet.Revocation{Status: &csv1.BreakGlassRevocationStatus{}}
	var status []byte
	var gone *time.Time
	if err := row.Scan(&v.UID, &v.ClusterUID, &v.Class, &v.Requester, &v.Reason, &status, &v.Revision, &v.CreateTime, &gone, &v.Elevation); err != nil {
		return nil, err
	}
	v.CreateTime, v.GoneTime = v.CreateTime.UTC(), notNull(gone)
	if err := proto.Unmarshal(status, v.Status); err != nil {
		return nil, fmt.Errorf("decoding the status of revocation %s: %w", v.UID, err)
	}
	return v, knownClass("revocation "+v.UID, v.Class)
}

// knownClass rejects a stored class that this release does not know. Names on the management cluster follow from the class,
// so no class may be treated as another one.
func knownClass(of string, class csv1.BreakGlassClass) error {
	if _, err := fleet.SignerClass(class); err != nil {
		return fmt.Errorf("decoding %s: class: %w", of, err)
	}
	return nil
}

// ExternalAuth returns an external authentication.
func (s *Store) ExternalAuth(ctx context.Context, uid string) (*fleet.ExternalAuth, error) {
	rows, err := s.pool.Query(ctx, "SELECT "+authColumns+" FROM external_auths WHERE uid = $1", uid)
	if err != nil {
		return nil, fmt.Errorf("reading an external auth: %w", err)
	}
	return unknown(pgx.CollectExactlyOneRow(rows, scanAuth))
}

// Credential returns a break-glass credential.
func (s *Store) Credential(ctx context.Context, uid string) (*fleet.Credential, error) {
	rows, err := s.pool.Query(ctx, "SELECT "+credentialColumns+" FROM break_glass_credentials WHERE uid = $1", uid)
	if err != nil {
		return nil, fmt.Errorf("reading a credential: %w", err)
	}
	return unknown(pgx.CollectExactlyOneRow(rows, scanCredential))
}

// CredentialByFingerprint returns the credential of a cluster with the fingerprint of a certificate, or nil. It also finds
// credentials that ended and are still recorded.
func (s *Store) CredentialByFingerprint(ctx context.Context, clusterUID, fingerprint string) (*fleet.Credential, error) {
	rows, err := s.pool.Query(ctx, "SELECT "+credentialColumns+" FROM break_glass_credentials WHERE cluster_uid = $1", clusterUID)
	if err != nil {
		return nil, fmt.Errorf("reading the credentials of a cluster: %w", err)
	}
	credentials, err := pgx.CollectRows(rows, scanCredential)
	if err != nil {
		return nil, fmt.Errorf("reading the credentials of a cluster: %w", err)
	}
	return (&fleet.ClusterAggregate{Credentials: credentials}).CredentialByFingerprint(fingerprint), nil
}

// Revocation returns a revocation.
func (s *Store) Revocation(ctx context.Context, uid string) (*fleet.Revocation, error) {
	rows, err := s.pool.Query(ctx, "SELECT "+revocationColumns+" FROM break_glass_revocations WHERE uid = $1", uid)
	if err != nil {
		return nil, fmt.Errorf("reading a revocation: %w", err)
	}
	return unknown(pgx.CollectExactlyOneRow(rows, scanRevocation))
}

// ListExternalAuths returns a page of external authentications and the revision up to which the page is complete.
func (s *Store) ListExternalAuths(ctx context.Context, f Filter) ([]*fleet.ExternalAuth, int64, error) {
	query, args := where(f, "cluster_uid", f.ClusterUID).query("external_auths", authColumns, f.Limit)
	return list(ctx, s, query, args, scanAuth)
}

// ListCredentials returns a page of all recorded credentials and the revision up to which the page is complete.
func (s *Store) ListCredentials(ctx context.Context, f Filter) ([]*fleet.Credential, int64, error) {
	f.Records = true
	query, args := where(f, "cluster_uid", f.ClusterUID).query("break_glass_credentials", credentialColumns, f.Limit)
	return list(ctx, s, query, args, scanCredential)
}

// ListRevocations returns a page of all recorded revocations and the revision up to which the page is complete.
func (s *Store) ListRevocations(ctx context.Context, f Filter) ([]*fleet.Revocation, int64, error) {
	f.Records = true
	query, args := where(f, "cluster_uid", f.ClusterUID).query("break_glass_revocations", revocationColumns, f.Limit)
	return list(ctx, s, query, args, scanRevocation)
}

// ExpiredCredentials returns the clusters with a credential whose ExpireTime has passed, and the time at which
// the next one expires; zero if there is none.
func (s *Store) ExpiredCredentials(ctx context.Context, limit int) (clusterUIDs []string, next time.Time, err error) {
	now := s.Now()
	// The time of others is only the end of what their revocation prevents.
	expiring := []int16{int16(csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_PENDING), int16(csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_ISSUED),
		int16(csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_AWAITING_REVOCATION)}
	err = s.snapshot(ctx, func(batch *pgx.Batch) {
		batch.Queue("SELECT DISTINCT cluster_uid::text FROM break_glass_credentials WHERE expire_time <= $1 AND state = ANY($3) LIMIT $2", now, limit, expiring).
			Query(func(rows pgx.Rows) (err error) {
				clusterUIDs, err = pgx.CollectRows(rows, pgx.RowTo[string])
				return err
			})
		batch.Queue("SELECT min(expire_time) FROM break_glass_credentials WHERE expire_time > $1 AND state = ANY($2)", now, expiring).QueryRow(func(row pgx.Row) error {
			var first *time.Time
			err := row.Scan(&first)
			next = notNull(first)
			return err
		})
	})
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("looking for expired credentials: %w", err)
	}
	return clusterUIDs, next, nil
}
