package grant

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/intent"
	"github.com/hcpmesh/hcpmesh/internal/testing/intenttest"
	"github.com/hcpmesh/hcpmesh/internal/testing/refusalcost"
)

// refusedRequests returns an accepted request for a token, refused ones, and what decides about them before a token is created.
func refusedRequests(tb testing.TB) (accepted []byte, refused map[string][]byte, decide func([]byte) error) {
	admin := intenttest.New(tb)
	g := &granter{cluster: ServiceCluster(), intents: admin.Verifier}
	signed, parameters := admin.Session(tb, adminv1.ActionServiceClusterSessionRequest, intent.Target{Kind: adminv1.TargetServiceCluster, ID: adminv1.ServiceCluster}, adminv1.AccessRead)
	accepted, err := json.Marshal(Request{Intent: signed, Parameters: parameters})
	if err != nil {
		tb.Fatal(err)
	}
	quoted, err := json.Marshal(signed)
	if err != nil {
		tb.Fatal(err)
	}
	refused = refusalcost.Texts(MaxBody)
	maps.Copy(refused, map[string][]byte{
		"long intent":               refusalcost.Filled(MaxBody, `{"intent":"`, "a", `"}`),
		"dots in the intent":        refusalcost.Filled(MaxBody, `{"intent":"`, "e30.", `"}`),
		"long signature":            refusalcost.Filled(MaxBody, `{"parameters":{},"intent":"`+signed, "a", `"}`),
		"other parameters":          refusalcost.Numbered(MaxBody, `{"intent":`+string(quoted)+`,"parameters":{`, `"%d":1,`, `"last":1}}`),
		"list in the parameters":    refusalcost.Filled(MaxBody, `{"intent":`+string(quoted)+`,"parameters":[`, "1,", "1]}"),
		"objects in the parameters": refusalcost.Filled(MaxBody, `{"intent":`+string(quoted)+`,"parameters":[`, `{"a":{}},`, "1]}"),
	})
	return accepted, refused, func(content []byte) error {
		request, err := decodeRequest(bytes.NewReader(content))
		if err != nil {
			return err
		}
		asked, err := g.intents.Verify(context.Background(), request.Intent)
		if err != nil {
			return err
		}
		_, _, err = g.check(asked, request.Parameters, time.Now())
		return err
	}
}

// TestRefusedRequestsNeedNoMoreMemory compares requests for tokens that are refused with an accepted one.
func TestRefusedRequestsNeedNoMoreMemory(t *testing.T) {
	accepted, refused, decide := refusedRequests(t)
	refusalcost.CheckMemory(t, accepted, refused, decide)
}

// BenchmarkRefusedRequests compares requests for tokens that are refused with an accepted one.
func BenchmarkRefusedRequests(b *testing.B) {
	accepted, refused, decide := refusedRequests(b)
	refusalcost.Compare(b, accepted, refused, decide)
}
