package render_test

import (
	"encoding/json"
	"testing"
	"time"

	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
)

// TestRestartOfControlPlaneIsRendered checks that a requested restart changes the annotation for which HyperShift restarts a control
// plane, and the digest of the work; and that a control plane without such a request has no annotation.
func TestRestartOfControlPlaneIsRendered(t *testing.T) {
	r := renderer()
	render := func(restart *timestamppb.Timestamp) (annotation, digest string) {
		t.Helper()
		aggregate := settled(t, r, func(t *fleet.ClusterAggregate) { t.Cluster.Status.ControlPlaneRestartTime = restart })
		bundle, err := r.Bundle(aggregate, aggregate.Work(fleet.HostedCluster, ""))
		if err != nil {
			t.Fatal(err)
		}
		for _, manifest := range bundle.Manifests {
			var h hyperv1.HostedCluster
			if err := json.Unmarshal(manifest, &h); err == nil && h.Kind == "HostedCluster" {
				return h.Annotations[hyperv1.RestartDateAnnotation], bundle.Digest
			}
		}
		t.Fatal("the work has no HostedCluster")
		return "", ""
	}
	at := time.Date(2026, 3, 14, 15, 9, 26, 535e6, time.UTC)
	digests := map[string]bool{}
	for want, restart := range map[string]*timestamppb.Timestamp{
		"": nil, "2026-03-14T15:09:26.535Z": timestamppb.New(at), "2026-03-14T15:09:26.536Z": timestamppb.New(at.Add(time.Millisecond)),
	} {
		got, digest := render(restart)
		if got != want || digests[digest] {
			t.Errorf("the annotation is %q, want %q; the digest is that of another one: %t", got, want, digests[digest])
		}
		digests[digest] = true
	}
}
