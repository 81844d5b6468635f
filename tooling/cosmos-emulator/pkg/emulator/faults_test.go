package emulator_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/faults"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/emulator"
)

func TestFaults(t *testing.T) {
	s, c, _ := openContainer(t, emulator.Options{EnableFaults: true})
	ctx := context.Background()
	add := func(r faults.Rule) {
		t.Helper()
		s.Faults().Clear()
		must.Get(s.Faults().Add(r))(t)
	}
	item := []byte(`{"id":"a","partitionKey":"p"}`)
	create := func() error { _, err := c.CreateItem(ctx, pk("p"), item, nil); return err }

	add(faults.Rule{Operations: []string{"create"}, PartitionKey: `["p"]`, Status: 429, RetryAfterMS: 1, Count: 1})
	if err := create(); err != nil { // the client retries a 429
		t.Errorf("one 429: %v", err)
	}
	if got := s.Faults().List(); len(got) != 1 || got[0].Fired != 1 {
		t.Errorf("the rule did not fire once: %+v", got)
	}
	for _, code := range []int{412, 449, 503} {
		add(faults.Rule{Operations: []string{"delete"}, Container: "items", ItemID: "a", Status: code})
		if _, err := c.DeleteItem(ctx, pk("p"), "a", nil); status(err) != fmt.Sprint(code) {
			t.Errorf("status %v, want %d", err, code)
		}
	}
	add(faults.Rule{Operations: []string{"upsert"}, DropResponse: true, Count: 1})
	if _, err := c.UpsertItem(ctx, pk("p"), []byte(`{"id":"lost","partitionKey":"p"}`), nil); err == nil {
		t.Error("the client received a dropped response")
	}
	if _, err := c.ReadItem(ctx, pk("p"), "lost", nil); err != nil {
		t.Errorf("the write with the dropped response had no effect: %v", err)
	}
	add(faults.Rule{Operations: []string{"upsert"}, DropRequest: true, Count: 1})
	if _, err := c.UpsertItem(ctx, pk("p"), []byte(`{"id":"never","partitionKey":"p"}`), nil); err == nil {
		t.Error("the client received a response to a dropped request")
	}
	if _, err := c.ReadItem(ctx, pk("p"), "never", nil); status(err) != "404" {
		t.Errorf("the dropped request had an effect: %v", err)
	}
}

func TestFaultsAreOffByDefault(t *testing.T) {
	s, c, h := openContainer(t, emulator.Options{})
	must.Get(s.Faults().Add(faults.Rule{Status: 503}))(t)
	if _, err := c.CreateItem(context.Background(), pk("p"), []byte(`{"id":"a","partitionKey":"p"}`), nil); err != nil {
		t.Errorf("a rule fired: %v", err)
	}
	resp := must.Get(http.Get(h.URL + "/_emulator/faults"))(t)
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("the control endpoint responded with %d", resp.StatusCode)
	}
}
