package supplychain_test

import (
	"debug/buildinfo"
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/supplychain/pkg/supplychain"
)

func TestStatement(t *testing.T) {
	path := buildProgram(t, "../..", "./cmd/supplychain")
	commit, digest := strings.Repeat("12", 20), strings.Repeat("ab", 32)
	text := must.Get(supplychain.ProvenanceOf(commit, []supplychain.Program{{Name: "a", Package: "./cmd/a", Path: path, SHA256: digest}, {Name: "b", Package: "./cmd/b", Path: path, SHA256: digest}}))(t)
	type resource struct {
		Name, URI string
		Digest    map[string]string
	}
	var statement struct {
		Type          string `json:"_type"`
		PredicateType string
		Subject       []resource
		Predicate     struct {
			BuildDefinition struct {
				ExternalParameters   struct{ Commit string }
				InternalParameters   map[string]string
				ResolvedDependencies []resource
			}
		}
	}
	must.Do(t, json.Unmarshal(text, &statement))
	build := statement.Predicate.BuildDefinition
	if statement.Type != "https://in-toto.io/Statement/v1" || statement.PredicateType != "https://slsa.dev/provenance/v1" || len(statement.Subject) != 2 ||
		statement.Subject[1].Name != "b" || statement.Subject[1].Digest["sha256"] != digest || build.ExternalParameters.Commit != commit ||
		build.InternalParameters["go"] != runtime.Version() || build.InternalParameters["GOARCH"] != runtime.GOARCH {
		t.Errorf("%s", text)
	}
	info := must.Get(buildinfo.ReadFile(path))(t)
	if got := build.ResolvedDependencies; len(got) != len(info.Deps)+1 || got[0].Digest["gitCommit"] != commit || len(got[1].Digest["dirHash"]) != 64 {
		t.Errorf("%d modules: %+v", len(info.Deps), got)
	}
	for reason, wrong := range map[string]struct{ commit, digest string }{"a branch": {"main", digest}, "a short digest": {commit, "ab"}} {
		if text, err := supplychain.ProvenanceOf(wrong.commit, []supplychain.Program{{Name: "a", Path: path, SHA256: wrong.digest}}); err == nil {
			t.Errorf("%s: %s", reason, text)
		}
	}
}
