package broker_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/tooling/eventgrid-emulator/pkg/broker"
)

// TestRefusalsArePassedOn checks what the broker passes to the audit: who was refused which topic, and the connections of workloads
// without a topic. What is allowed is not passed on.
func TestRefusalsArePassedOn(t *testing.T) {
	var mu sync.Mutex
	var got []mesh.Refusal
	r := start(t, broker.Options{Refused: func(_ context.Context, refusal mesh.Refusal) {
		refusal.Err = nil
		mu.Lock()
		defer mu.Unlock()
		got = append(got, refusal)
	}})
	agent := r.mustConnect("mgmt-1")
	if agent.subscribe(t, down1, 1) != nil || agent.publish(t, up1, "x") != nil {
		t.Error("the own topics are refused")
	}
	if agent.subscribe(t, down2, 1) == nil || agent.publish(t, up2, "x") == nil || agent.subscribe(t, "#", 1) == nil {
		t.Error("topics of others are allowed")
	}
	if _, err := r.connectWith(r.issueFor(mesh.Frontend, "frontend"), "frontend", nil); err == nil {
		t.Error("the frontend has connected")
	}
	want := []mesh.Refusal{
		{Client: mesh.Frontend, Name: "frontend", Method: mesh.Connect},
		{Client: mesh.MaestroAgent, Name: "mgmt-1", Method: "publish agentevents", Object: up2},
		{Client: mesh.MaestroAgent, Name: "mgmt-1", Method: "subscribe", Object: "#"},
		{Client: mesh.MaestroAgent, Name: "mgmt-1", Method: "subscribe sourceevents", Object: down2},
	}
	mu.Lock()
	defer mu.Unlock()
	slices.SortFunc(got, func(a, b mesh.Refusal) int {
		return strings.Compare(string(a.Client)+a.Method, string(b.Client)+b.Method)
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("refusals (-want +got):\n%s", diff)
	}
}
