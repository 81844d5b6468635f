package fleet

import (
	"google.golang.org/protobuf/proto"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
)

// The actions of access records.
const (
	CredentialRequested = "credentials.requested"
	CredentialIssued    = "credentials.issued"
	CredentialFailed    = "credentials.failed"
	CredentialCanceled  = "credentials.canceled"
	CredentialRevoking  = "credentials.revoking"
	CredentialRevoked   = "credentials.revoked"
	CredentialExpired   = "credentials.expired"
	CredentialUsed      = "credentials.used"
	CredentialUsedAgain = "credentials.usedAgain"
	RevocationRequested = "revocations.requested"
	RevocationBegun     = "revocations.begun"
	RevocationSucceeded = "revocations.succeeded"
	RevocationFailed    = "revocations.failed"
	RevocationCanceled  = "revocations.canceled"
)

var credentialActions = map[csv1.BreakGlassCredentialState]string{
	csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_PENDING:             CredentialRequested,
	csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_ISSUED:              CredentialIssued,
	csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_FAILED:              CredentialFailed,
	csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_CANCELED:            CredentialCanceled,
	csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_AWAITING_REVOCATION: CredentialRevoking,
	csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_REVOKED:             CredentialRevoked,
	csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_EXPIRED:             CredentialExpired,
}

var revocationActions = map[csv1.BreakGlassRevocationState]string{
	csv1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_PENDING:   RevocationRequested,
	csv1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_REVOKING:  RevocationBegun,
	csv1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_SUCCEEDED: RevocationSucceeded,
	csv1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_FAILED:    RevocationFailed,
	csv1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_CANCELED:  RevocationCanceled,
}

// AccessRecord is one event of the access to a cluster, for the audit log.
type AccessRecord struct {
	Action     string
	ClusterUID string
	ResourceID string
	// Credential or Revocation is the subject of the record. Both are nil if a certificate was used that belongs to no
	// credential of the aggregate: a credential that ended long ago, or an unknown one.
	Credential *Credential
	Revocation *Revocation
	// Use is set if a certificate was used.
	Use *hostedreport.CredentialUse
}

// AccessRecords returns the events between two states of an aggregate.
func AccessRecords(before, after *ClusterAggregate) []AccessRecord {
	var records []AccessRecord
	add := func(r AccessRecord) {
		if after.Cluster != nil {
			r.ClusterUID, r.ResourceID = after.Cluster.UID, after.Cluster.ResourceID
		}
		records = append(records, r)
	}
	for _, v := range after.Revocations {
		if known := before.Revocation(v.UID); known == nil || known.Status.GetState() != v.Status.GetState() {
			add(AccessRecord{Action: revocationActions[v.Status.GetState()], Revocation: v})
		}
	}
	for _, c := range after.Credentials {
		known := before.Credential(c.UID)
		if known == nil || known.State() != c.State() {
			add(AccessRecord{Action: credentialActions[c.State()], Credential: c})
		}
		if use := c.Status.GetUse(); use != nil && (known == nil || !proto.Equal(known.Status.GetUse(), use)) {
			action := CredentialUsed
			if known != nil && known.Status.GetUse() != nil {
				action = CredentialUsedAgain
			}
			add(AccessRecord{Action: action, Credential: c, Use: &hostedreport.CredentialUse{Fingerprint: c.Fingerprint(), User: userOf(after, c),
				First: use.GetFirstTime().AsTime(), Last: use.GetLastTime().AsTime(), Addresses: use.GetAddresses(), Request: use.GetFirstRequest()}})
		}
	}
	known := hostedreport.CredentialReport{}
	for _, u := range before.Uses() {
		known.Note(u)
	}
	for _, u := range after.Uses() {
		if after.CredentialByFingerprint(u.Fingerprint) != nil {
			continue
		}
		_, again := known[u.Fingerprint]
		if !known.Note(u) {
			continue
		}
		action := CredentialUsed
		if again {
			action = CredentialUsedAgain
		}
		add(AccessRecord{Action: action, Use: &u})
	}
	return records
}

// userOf returns the user name under which the API server saw the holder of a credential.
func userOf(t *ClusterAggregate, c *Credential) string {
	fingerprint := c.Fingerprint()
	for _, u := range t.Uses() {
		if u.Fingerprint == fingerprint {
			return u.User
		}
	}
	return ""
}
