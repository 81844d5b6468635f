package fleet

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"slices"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/credentialuse"
)

// Fingerprint is the SHA-256 of a certificate (PEM), as API servers name it in their audit logs; empty where there is none.
func Fingerprint(certificate string) string {
	block, _ := pem.Decode([]byte(certificate))
	if block == nil {
		return ""
	}
	sum := sha256.Sum256(block.Bytes)
	return hex.EncodeToString(sum[:])
}

// Fingerprint is the one of a credential's certificate; empty before it is issued.
func (c *Credential) Fingerprint() string {
	if known := c.Status.GetCertificateFingerprint(); known != "" {
		return known
	}
	return Fingerprint(c.Status.GetCertificate()) // issued before fingerprints were kept
}

// Uses are those that the management cluster reports.
func (t *ClusterAggregate) Uses() []credentialuse.Use {
	work := t.Work(HostedCluster, "")
	if work == nil {
		return nil
	}
	return work.Observed.Uses
}

// CredentialByFingerprint finds the credential of a certificate; nil when there is none, or it has long ended.
func (t *ClusterAggregate) CredentialByFingerprint(fingerprint string) *Credential {
	i := slices.IndexFunc(t.Credentials, func(c *Credential) bool { return c.Fingerprint() == fingerprint })
	if i < 0 {
		return nil
	}
	return t.Credentials[i]
}

// noteUses takes over what is reported of the use of credentials. What was once seen stays, whatever is reported later.
func noteUses(t *ClusterAggregate) {
	for _, seen := range t.Uses() {
		c := t.CredentialByFingerprint(seen.Fingerprint)
		if c == nil {
			continue
		}
		report := credentialuse.Report{}
		if known := c.Status.GetUse(); known != nil {
			report.Note(credentialuse.Use{Fingerprint: seen.Fingerprint, User: seen.User, First: known.GetFirstTime().AsTime(), Last: known.GetLastTime().AsTime(),
				Addresses: known.GetAddresses(), Request: known.GetFirstRequest()})
		}
		report.Note(seen)
		for _, u := range report.Uses() {
			c.Status.Use = &csv1.BreakGlassUse{FirstTime: timestamp(u.First), LastTime: timestamp(u.Last), Addresses: u.Addresses, FirstRequest: u.Request}
		}
	}
}

// skew is by how much the clocks of an API server and of ours may differ.
const skew = time.Minute

// UsedAfterEnd says that a certificate was used when it should not have been taken any more.
func (c *Credential) UsedAfterEnd(last time.Time) bool {
	end := c.GoneTime
	if expires := c.Status.GetExpirationTime(); expires != nil && (end.IsZero() || expires.AsTime().Before(end)) {
		end = expires.AsTime()
	}
	return !end.IsZero() && last.After(end.Add(skew))
}
