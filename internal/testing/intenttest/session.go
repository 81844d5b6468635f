package intenttest

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/intent"
)

// Session returns the signed intent of alice for an access session of 10 minutes with a target, after changes, and its parameters. Her elevation has the role that
// the mode needs, and ends after an hour.
func (a *Admin) Session(t testing.TB, action string, target intent.Target, mode adminv1.AccessMode, changes ...func(*intent.Intent)) (signed string, parameters []byte) {
	t.Helper()
	parameters, err := json.Marshal(adminv1.AccessSessionRequest{Mode: mode, Duration: "10m0s"})
	if err != nil {
		t.Fatal(err)
	}
	digest, err := intent.DigestJSON(parameters)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC().Truncate(time.Second)
	i := &intent.Intent{OperationID: "operation", ObjectID: "alice", TenantID: "tenant", Name: "alice@example.com", Reason: "it is stuck", Ticket: "INC-1",
		Elevation: intent.Elevation{ID: "elevation", Role: string(mode.Level().Role()), ExpiresAt: now.Add(time.Hour)}, Action: action, Target: target,
		Parameters: digest, IssuedAt: now, ExpiresAt: now.Add(time.Hour)}
	for _, change := range changes {
		change(i)
	}
	if signed, err = a.Signer.Sign(i); err != nil {
		t.Fatal(err)
	}
	return signed, parameters
}
