package command

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestUseOfCredentialsIsShown checks the columns of a used and of an unused credential.
func TestUseOfCredentialsIsShown(t *testing.T) {
	at := func(hour int) *timestamppb.Timestamp {
		return timestamppb.New(time.Date(2026, 3, 1, hour, 0, 0, 0, time.UTC))
	}
	used := adminv1.FleetCredential{Of: &csv1.BreakGlassCredential{Uid: "u1", ClusterUid: "c", CreateTime: at(8),
		Spec: &csv1.BreakGlassCredentialSpec{Class: csv1.BreakGlassClass_BREAK_GLASS_CLASS_SRE, Level: csv1.BreakGlassLevel_BREAK_GLASS_LEVEL_READER, Requester: "ada", Reason: "INC-1: no console"},
		Status: &csv1.BreakGlassCredentialStatus{State: csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_ISSUED, ExpirationTime: at(18),
			CertificateFingerprint: "5f1c",
			Use:                    &csv1.BreakGlassUse{FirstTime: at(9), LastTime: at(11), Addresses: []string{"10.0.0.1", "10.0.0.2"}, FirstRequest: "list pods"}}}}
	unused := adminv1.FleetCredential{Of: &csv1.BreakGlassCredential{Uid: "u2", ClusterUid: "c", CreateTime: at(10),
		Spec:   &csv1.BreakGlassCredentialSpec{Class: csv1.BreakGlassClass_BREAK_GLASS_CLASS_CUSTOMER, Requester: "alice"},
		Status: &csv1.BreakGlassCredentialStatus{State: csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_PENDING}}}
	a := newSREs(t)
	a.shown["/clusters/demo/credentials"] = adminv1.CredentialList{Items: []adminv1.FleetCredential{used, unused}}
	out := must.Get(a.hcpctl(t, "break-glass", "list", "demo"))(t)
	table := `UID|CLASS|LEVEL|STATE|REQUESTER|REASON|EXPIRES|FIRST USE|LAST USE|FROM
u2|customer|-|PENDING|alice|-|-|-|-|-
u1|sre|reader|ISSUED|ada|INC-1: no console|2026-03-01T18:00:00Z|2026-03-01T09:00:00Z|2026-03-01T11:00:00Z|10.0.0.1, 10.0.0.2
`
	if diff := cmp.Diff(table, regexp.MustCompile(`  +`).ReplaceAllString(out, "|")); diff != "" {
		t.Error(diff)
	}
	want := [][]string{{"uid", "u1"}, {"cluster uid", "c"}, {"class", "sre"}, {"level", "reader"}, {"state", "ISSUED"}, {"requester", "ada"}, {"reason", "INC-1: no console"},
		{"requested", "2026-03-01T08:00:00Z"}, {"expires", "2026-03-01T18:00:00Z"}, {"fingerprint", "5f1c"},
		{"first use", "2026-03-01T09:00:00Z, list pods"}, {"last use", "2026-03-01T11:00:00Z (rounded to the hour)"}, {"from", "10.0.0.1, 10.0.0.2"}}
	if diff := cmp.Diff(want, credentialFields(&used)); diff != "" {
		t.Error(diff)
	}
	if last := credentialFields(&unused)[10]; last[1] != "no use reported" {
		t.Errorf("one that was not used shows %v", last)
	}
}

// TestRevokeWaitsForRejection checks that the command succeeds once the API server rejects the certificates, and not when the
// request is accepted.
func TestRevokeWaitsForRejection(t *testing.T) {
	for name, tc := range map[string]struct {
		state csv1.BreakGlassRevocationState
		out   string
		err   string
	}{
		"Succeeded": {csv1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_SUCCEEDED, "rejects all previous certificates of class sre", ""},
		"Canceled":  {csv1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_CANCELED, "", "did not succeed: its state is canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newSREs(t)
			revocation := func(uid string, state csv1.BreakGlassRevocationState) adminv1.FleetRevocation {
				return adminv1.FleetRevocation{Of: &csv1.BreakGlassRevocation{Uid: uid, Status: &csv1.BreakGlassRevocationStatus{State: state}}}
			}
			a.shown["/clusters/demo/credentials"] = adminv1.CredentialList{Revocations: []adminv1.FleetRevocation{
				revocation("another", csv1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_FAILED), revocation("o", tc.state)}}
			out, err := a.hcpctl(t, "break-glass", "revoke", "demo", "--class", "sre")
			if !strings.Contains(out, tc.out) || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%q, %v", out, err)
			}
		})
	}
}
