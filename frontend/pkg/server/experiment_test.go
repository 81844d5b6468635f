package server_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/api/experiment"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// experiments returns what Cluster Service gets of the subscription's only cluster.
func (y *testSubscription) experiments() map[string]string {
	y.t.Helper()
	clusters := y.documents().clusters
	if len(clusters) != 1 {
		y.t.Fatalf("%d clusters", len(clusters))
	}
	request := must.Get(clusterservice.ClusterRequest(&clusters[0].Value))(y.t)
	return request.GetSpec().GetExperiments()
}

// TestExperimentsReachClusterService: Cluster Service gets the experimental tags in effect, with the names that it knows
// and not those that the customer wrote.
func TestExperimentsReachClusterService(t *testing.T) {
	t.Parallel()
	y := newHarness(t).newSubscription(t)
	feature := func(state string) {
		y.mustDo(http.StatusOK, http.MethodPut, "/subscriptions/"+y.subscription+"?api-version=2.0",
			`{"state":"Registered","registrationDate":"now","properties":{"registeredFeatures":[{"name":"Microsoft.RedHatOpenShift/ExperimentalReleaseFeatures","state":"`+state+`"}]}}`)
	}
	change := func(status int, method, body string) {
		y.mustDo(status, method, y.cluster("cluster"), body)
		must.Do(t, y.finishOperations(context.Background()))
	}
	for _, step := range []struct {
		reason, feature string
		status          int
		method, body    string
		want            map[string]string
	}{
		{"without the feature no tag is in effect", "Pending", http.StatusCreated, http.MethodPut,
			y.body("cluster.json", `{"tags":{"ARO-HCP.Experimental.Cluster.Size-Override":"Minimal","aro-hcp.experimental.cluster.MAX-creation-duration":"2h"}}`), nil},
		{"the feature alone changes nothing; a change of the cluster does", "Registered", http.StatusAccepted, http.MethodPatch,
			`{"tags":{"team":"a"}}`, map[string]string{experiment.SizeOverride: "Minimal"}},
		{"a removed tag is no longer in effect", "Registered", http.StatusAccepted, http.MethodPatch,
			`{"tags":{"aro-hcp.experimental.cluster.size-override":null,"aro-hcp.experimental.cluster.Control-Plane-EXACT-VERSION":"4.20.8"}}`, map[string]string{experiment.ExactVersion: "4.20.8"}},
		{"a PUT without the tag ends it, one with a tag sets it", "Registered", http.StatusOK, http.MethodPut,
			y.body("cluster.json", `{"tags":{"Aro-Hcp.Experimental.Cluster.SIZE-OVERRIDE":"Minimal"}}`), map[string]string{experiment.SizeOverride: "Minimal"}},
		{"without the feature the next change ends the effect", "Unregistered", http.StatusAccepted, http.MethodPatch, `{"tags":{"team":"b"}}`, nil},
	} {
		feature(step.feature)
		change(step.status, step.method, step.body)
		if diff := cmp.Diff(step.want, y.experiments()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.reason, diff)
		}
	}
}
