package command

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/armclient"
)

// stored returns the resource in the fake of ARM whose ID ends with a suffix.
func (a *azure) stored(t *testing.T, suffix string) map[string]any {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, resource := range a.resources {
		if strings.HasSuffix(id, strings.ToLower(suffix)) {
			return resource
		}
	}
	t.Fatalf("no resource %s", suffix)
	return nil
}

// TestTagsAreMerged sets and removes tags of a cluster. ARM merges the tags of a PATCH, so that the tags that a command does not name stay, and
// compares their names without case.
func TestTagsAreMerged(t *testing.T) {
	for name, tc := range map[string]struct {
		reason      string
		args        []string
		patch, want map[string]any
	}{
		"set":                {"others stay", []string{"--tag", "stage=test"}, map[string]any{"stage": "test"}, map[string]any{"team": "x", "owner": "me", "stage": "test"}},
		"remove":             {"null removes a tag", []string{"--tag", "owner-"}, map[string]any{"owner": nil}, map[string]any{"team": "x"}},
		"both":               {"one request has all changes", []string{"--tag", "owner-", "--tag", "team=y"}, map[string]any{"owner": nil, "team": "y"}, map[string]any{"team": "y"}},
		"remove in any case": {"the stored spelling is sent", []string{"--tag", "OWNER-"}, map[string]any{"owner": nil}, map[string]any{"team": "x"}},
		"set in any case":    {"the stored spelling is sent", []string{"--tag", "Team=y"}, map[string]any{"team": "y"}, map[string]any{"team": "y", "owner": "me"}},
		"remove an absent":   {"it is absent afterwards", []string{"--tag", "stage-"}, map[string]any{"stage": nil}, map[string]any{"team": "x", "owner": "me"}},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAzure(t)
			mustRun(t, a, "cluster", "create", "a", "--tag", "team=x", "--tag", "owner=me")
			mustRun(t, a, append([]string{"cluster", "update", "a"}, tc.args...)...)
			if diff := cmp.Diff([]map[string]any{{"tags": tc.patch}}, a.patches); diff != "" {
				t.Errorf("%s: the request (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(any(tc.want), a.stored(t, "/a")["tags"]); diff != "" {
				t.Errorf("%s: the tags (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestUpdateKeepsConcurrentChange changes a resource between the read and the write of an update. The update is computed from the new state; if
// there is a change each time, the command ends.
func TestUpdateKeepsConcurrentChange(t *testing.T) {
	for name, tc := range map[string]struct {
		changes int
		code    int
		want    map[string]any
	}{
		"once":   {1, 0, map[string]any{"STAGE": "prod", "team": "x"}},
		"always": {100, exitFailed, map[string]any{"STAGE": "test", "team": "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAzure(t)
			mustRun(t, a, "cluster", "create", "a", "--tag", "team=x")
			changes, attempts := 0, 0
			a.before = func(r *http.Request) {
				if r.Method != http.MethodPatch {
					return
				}
				attempts++
				if id := strings.ToLower(r.URL.Path); changes < tc.changes {
					changes++
					a.resources[id]["tags"].(map[string]any)["STAGE"] = "test"
					a.versions[id]++
				}
			}
			_, _, err := a.run(t, "cluster", "update", "a", "--tag", "stage=prod")
			if ExitCode(err) != tc.code {
				t.Errorf("the command ended with %v, want code %d", err, tc.code)
			}
			if diff := cmp.Diff(any(tc.want), a.stored(t, "/a")["tags"]); diff != "" {
				t.Errorf("the tags (-want +got):\n%s", diff)
			}
			if attempts > updateAttempts {
				t.Errorf("%d requests", attempts)
			}
		})
	}
}

// TestUpdateVerifiesItsEffect runs updates against a service that accepts them and does not store them.
func TestUpdateVerifiesItsEffect(t *testing.T) {
	for line, want := range map[string]string{
		"cluster update a --tag team-":                   `tags[team] is "x", not removed`,
		"cluster update a --tag team=y":                  `tags[team] is "x", not "y"`,
		"nodepool scale a workers --replicas 5":          `properties.replicas is 2, not 5`,
		"cluster update a --tag team=y --tag owner=none": `tags[owner] is absent, not "none"`,
	} {
		t.Run(line, func(t *testing.T) {
			a := newAzure(t)
			mustRun(t, a, "cluster", "create", "a", "--tag", "team=x")
			mustRun(t, a, "nodepool", "create", "a", "workers")
			a.before = func(r *http.Request) {
				if r.Method == http.MethodPatch {
					r.Body = io.NopCloser(strings.NewReader("{}"))
				}
			}
			_, _, err := a.run(t, strings.Fields(line)...)
			if ExitCode(err) != exitFailed || err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want an error with %q", err, want)
			}
		})
	}
}

// TestCheckStored compares patches with what a service stores for them.
func TestCheckStored(t *testing.T) {
	properties := func(values map[string]any) armclient.Resource { return armclient.Resource{"properties": values} }
	const identity = "/subscriptions/s/resourceGroups/g/providers/Microsoft.ManagedIdentity/userAssignedIdentities/i"
	for name, tc := range map[string]struct {
		kind          kind
		patch, stored armclient.Resource
		want          []string
	}{
		"read-only fields are ignored": {clusters(), armclient.Resource{"name": "b", "properties": map[string]any{"provisioningState": "Failed", "console": map[string]any{"url": "x"}}}, properties(map[string]any{"provisioningState": "Succeeded"}), nil},
		"null is the default":          {clusters(), properties(map[string]any{"autoscaling": nil, "cryptoRestrictions": nil}), properties(map[string]any{"cryptoRestrictions": "None", "autoscaling": map[string]any{"maxPodGracePeriodSeconds": 600.0, "maxNodesTotal": 0.0}}), nil},
		"null is not stored":           {clusters(), properties(map[string]any{"autoscaling": nil}), properties(map[string]any{"autoscaling": map[string]any{"maxPodGracePeriodSeconds": 30.0, "maxNodesTotal": 7.0}}), []string{"properties.autoscaling.maxNodesTotal is 7, not removed", "properties.autoscaling.maxPodGracePeriodSeconds is 30, not removed"}},
		"empty is absent":              {nodePools(), properties(map[string]any{"replicas": 0, "labels": []any{}}), properties(map[string]any{}), nil},
		"a list replaces":              {nodePools(), properties(map[string]any{"labels": []any{map[string]any{"key": "a", "value": "1"}}}), properties(map[string]any{"labels": []any{map[string]any{"key": "a", "value": "1"}, map[string]any{"key": "b"}}}), []string{`properties.labels is [{"key":"a","value":"1"},{"key":"b"}], not [{"key":"a","value":"1"}]`}},
		"an element differs":           {nodePools(), properties(map[string]any{"labels": []any{map[string]any{"key": "a", "value": "1"}}}), properties(map[string]any{"labels": []any{map[string]any{"key": "a", "value": "2"}}}), []string{`properties.labels[0].value is "2", not "1"`}},
		"IDs have no case":             {clusters(), armclient.Resource{"identity": map[string]any{"userAssignedIdentities": map[string]any{identity: map[string]any{"clientId": "sent"}}}}, armclient.Resource{"identity": map[string]any{"userAssignedIdentities": map[string]any{strings.ToUpper(identity): map[string]any{"clientId": "observed"}}}}, nil},
		"locations have no spaces":     {clusters(), armclient.Resource{"location": "West US 3"}, armclient.Resource{"location": "westus3"}, nil},
		"names of tags have no case":   {clusters(), armclient.Resource{"tags": map[string]any{"A": nil, "b": "1"}}, armclient.Resource{"tags": map[string]any{"a": "1", "B": "1"}}, []string{`tags[A] is "1", not removed`}},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := checkStored(tc.kind, tc.patch, tc.stored); err != nil {
				_, got, _ = strings.Cut(err.Error(), "\n  ")
			}
			if want := strings.Join(tc.want, "\n  "); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}
