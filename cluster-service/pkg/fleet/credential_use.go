package fleet

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"slices"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
)

// Fingerprint returns the SHA-256 of a PEM certificate as API servers write it in their audit logs; empty without a
// certificate.
func Fingerprint(certificate string) string {
	block, _ := pem.Decode([]byte(certificate))
	if block == nil {
		return ""
	}
	sum := sha256.Sum256(block.Bytes)
	return hex.EncodeToString(sum[:])
}

// Fingerprint returns the fingerprint of a credential's certificate; empty before it is issued.
func (c *Credential) Fingerprint() string {
	if known := c.Status.GetCertificateFingerprint(); known != "" {
		return known
	}
	return Fingerprint(c.Status.GetCertificate()) // issued before fingerprints were kept
}

// Uses returns the uses of certificates that the management cluster reports.
func (t *ClusterAggregate) Uses() []hostedreport.CredentialUse {
	work := t.Work(HostedCluster, "")
	if work == nil {
		return nil
	}
	return work.Observed.Uses
}

// CredentialByFingerprint returns the credential with the fingerprint of a certificate, or nil if there is none or it ended
// long ago.
func (t *ClusterAggregate) CredentialByFingerprint(fingerprint string) *Credential {
	i := slices.IndexFunc(t.Credentials, func(c *Credential) bool { return c.Fingerprint() == fingerprint })
	if i < 0 {
		return nil
	}
	return t.Credentials[i]
}

// noteUses stores the reported uses of credentials. A use that was reported once is kept.
func noteUses(t *ClusterAggregate) {
	for _, seen := range t.Uses() {
		c := t.CredentialByFingerprint(seen.Fingerprint)
		if c == nil {
			continue
		}
		report := hostedreport.CredentialReport{}
		if known := c.Status.GetUse(); known != nil {
			report.Note(hostedreport.CredentialUse{Fingerprint: seen.Fingerprint, User: seen.User, First: known.GetFirstTime().AsTime(), Last: known.GetLastTime().AsTime(),
				Addresses: known.GetAddresses(), Request: known.GetFirstRequest()})
		}
		report.Note(seen)
		for _, u := range report.Uses() {
			c.Status.Use = &csv1.BreakGlassUse{FirstTime: timestamp(u.First), LastTime: timestamp(u.Last), Addresses: u.Addresses, FirstRequest: u.Request}
		}
	}
}

// skew is the tolerated difference between the clocks of an API server and of this service.
const skew = time.Minute

// UsedAfterEnd reports whether a certificate was used after it expired or was revoked.
func (c *Credential) UsedAfterEnd(last time.Time) bool {
	end := c.GoneTime
	if expires := c.Status.GetExpirationTime(); expires != nil && (end.IsZero() || expires.AsTime().Before(end)) {
		end = expires.AsTime()
	}
	return !end.IsZero() && last.After(end.Add(skew))
}
