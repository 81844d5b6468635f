package command

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/seal"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestKeysOfAnAgentAreRotated follows the steps of docs/operators/sealing-keys.md. What was sealed before each step can be opened after it.
func TestKeysOfAnAgentAreRotated(t *testing.T) {
	dir := t.TempDir()
	private, public := filepath.Join(dir, "private.json"), filepath.Join(dir, "public.json")
	must.Do(t, seal.CreatePair(private, public))
	agent, err := seal.LoadPrivate(private) // it runs during the rotation
	if err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (string, error) {
		var out bytes.Buffer
		hcpctl := New(&out, &bytes.Buffer{})
		hcpctl.SetArgs(append([]string{"keys"}, args...))
		err := hcpctl.ExecuteContext(t.Context())
		return strings.TrimSpace(out.String()), err
	}
	succeed := func(args ...string) string {
		t.Helper()
		out, err := run(args...)
		if err != nil {
			t.Fatalf("hcpctl keys %s: %v", args, err)
		}
		return out
	}
	sealNow := func() (id string, sealed []byte) {
		t.Helper()
		keys := must.Get(seal.ReadPublic(public))(t)
		sealed = must.Get(keys.Seal("purpose", []byte("content")))(t)
		return keys.ID(), sealed
	}
	opens := func(sealed []byte) bool {
		content, err := agent.Open("purpose", sealed)
		return err == nil && string(content) == "content"
	}
	former, before := sealNow()
	if list := succeed("list", private); !strings.Contains(list, former) || strings.Count(list, "opening") != 1 {
		t.Errorf("list: %s", list)
	}
	added := succeed("add", private)
	succeed("promote", private, added)
	if !opens(before) {
		t.Error("the agent does not open what the former key sealed")
	}
	succeed("public", private, public)
	id, after := sealNow()
	if id != added || !opens(after) {
		t.Errorf("sealed with %s, want %s, and opened by the agent: %v", id, added, opens(after))
	}
	succeed("remove", private, former)
	if opens(before) || !opens(after) {
		t.Error("after the removal the agent must open what the new key sealed, and nothing else")
	}
	for reason, args := range map[string][]string{
		"primary key is in use": {"remove", private, added},
		"unknown key":           {"promote", private, former},
		"not an ID":             {"promote", private, "first"},
		"missing file":          {"list", filepath.Join(dir, "missing.json")},
		"not a private keyset":  {"add", public},
	} {
		if out, err := run(args...); err == nil {
			t.Errorf("%s: hcpctl keys %s: %s", reason, args, out)
		}
	}
}
