package validation_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/api/experiment"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/validation"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// operatorImage is an image that the built-in configuration allows.
var operatorImage = "quay.io/hypershift/control-plane-operator@sha256:" + strings.Repeat("0", 64)

func TestApplyExperiments(t *testing.T) {
	tag := func(name string) string { return "tags[" + name + "]" }
	without := &hub.Subscription{Properties: &hub.SubscriptionProperties{RegisteredFeatures: []hub.Feature{{Name: "Microsoft.RedHatOpenShift/ExperimentalReleaseFeatures", State: "registered"}}}}
	for name, tc := range map[string]struct {
		reason       string
		resourceType string
		tags         map[string]string
		// stored is nil for a creation; it holds the experiments in effect.
		stored map[string]string
		// before holds the stored tags.
		before       map[string]string
		subscription *hub.Subscription
		inEffect     map[string]string
		want         []apierror.Violation
	}{
		"all": {
			reason: "tags are in effect with lower-case names", resourceType: hub.ClusterResourceType, subscription: experimenting(),
			tags: map[string]string{
				"ARO-HCP.Experimental.Cluster.Single-Replica": "SingleReplica", experiment.SizeOverride: "Minimal", experiment.ExactVersion: "4.20.8",
				experiment.ControlPlaneOperatorImage: " " + operatorImage + " ", experiment.ClusterCreationDeadline: "1m", experiment.ClusterDeletionDeadline: "168h", "team": "a",
			},
			inEffect: map[string]string{
				experiment.SingleReplica: "SingleReplica", experiment.SizeOverride: "Minimal", experiment.ExactVersion: "4.20.8",
				experiment.ControlPlaneOperatorImage: operatorImage, experiment.ClusterCreationDeadline: "1m", experiment.ClusterDeletionDeadline: "168h",
			},
		},
		"without the feature": {
			reason: "no tag is in effect or validated, and those in effect end", resourceType: hub.ClusterResourceType, subscription: without,
			tags: map[string]string{experiment.SizeOverride: "true", experiment.ClusterPrefix + "fast": "x"}, stored: map[string]string{experiment.SizeOverride: "Minimal"},
		},
		"single replica without the feature": {
			reason: "HyperShift cannot change it", resourceType: hub.ClusterResourceType, subscription: without,
			tags: map[string]string{experiment.SingleReplica: ""}, stored: map[string]string{experiment.SingleReplica: "SingleReplica"},
			inEffect: map[string]string{experiment.SingleReplica: "SingleReplica"},
		},
		"single replica removed": {
			reason: "HyperShift cannot change it", resourceType: hub.ClusterResourceType, subscription: experimenting(),
			tags: map[string]string{"team": "a"}, stored: map[string]string{experiment.SingleReplica: "SingleReplica"}, before: map[string]string{experiment.SingleReplica: "SingleReplica"},
			want: []apierror.Violation{violation(tag(experiment.SingleReplica), `Invalid value: "": cannot be changed after the creation`)},
		},
		"single replica added": {
			reason: "HyperShift cannot change it", resourceType: hub.ClusterResourceType, subscription: experimenting(),
			tags: map[string]string{experiment.SingleReplica: "SingleReplica"}, stored: map[string]string{experiment.SizeOverride: "Minimal"},
			want: []apierror.Violation{violation(tag(experiment.SingleReplica), `Invalid value: "SingleReplica": cannot be changed after the creation`)},
		},
		"single replica without effect": {
			reason: "a tag from before the feature stays without effect", resourceType: hub.ClusterResourceType, subscription: experimenting(),
			tags: map[string]string{"ARO-HCP.experimental.cluster.single-replica": "SingleReplica"}, stored: map[string]string{}, before: map[string]string{experiment.SingleReplica: "SingleReplica"},
		},
		"empty": {
			reason: "an empty tag is the same as none", resourceType: hub.ClusterResourceType, subscription: experimenting(),
			tags: map[string]string{experiment.SingleReplica: "", experiment.SizeOverride: "", experiment.ClusterDeletionDeadline: ""},
		},
		"empty version": {
			reason: "the exact version must not be empty", resourceType: hub.ClusterResourceType, subscription: experimenting(),
			tags: map[string]string{experiment.ExactVersion: ""},
			want: []apierror.Violation{violation(tag(experiment.ExactVersion), `Invalid value: "": must be of the form MAJOR.MINOR.PATCH, with an optional pre-release and build`)},
		},
		"unknown": {
			reason: "only the first unknown tag is reported, with the written name", resourceType: hub.ClusterResourceType, subscription: experimenting(),
			tags: map[string]string{"ARO-HCP.experimental.cluster.a": "x", experiment.ClusterPrefix + "b": "y", experiment.SingleReplica: "true"},
			want: []apierror.Violation{violation("tags[ARO-HCP.experimental.cluster.a]", `Invalid value: "x": is not an experimental tag; the tags are aro-hcp.experimental.cluster.control-plane-exact-version, aro-hcp.experimental.cluster.control-plane-operator-image-override, aro-hcp.experimental.cluster.max-creation-duration, aro-hcp.experimental.cluster.max-deletion-duration, aro-hcp.experimental.cluster.single-replica, aro-hcp.experimental.cluster.size-override`)},
		},
		"several": {
			reason: "all known tags are validated; the target has the lower-case name", resourceType: hub.ClusterResourceType, subscription: experimenting(),
			tags: map[string]string{"ARO-HCP.EXPERIMENTAL.CLUSTER.SINGLE-REPLICA": "true", experiment.SizeOverride: "minimal", experiment.ClusterDeletionDeadline: "59s"},
			want: []apierror.Violation{
				violation(tag(experiment.ClusterDeletionDeadline), `Invalid value: "59s": must be a duration of at least 1m, as in 90m`),
				violation(tag(experiment.SingleReplica), `Invalid value: "true": must be SingleReplica or empty`),
				violation(tag(experiment.SizeOverride), `Invalid value: "minimal": must be Minimal or empty`),
			},
		},
		"creation deadline at an update": {
			reason: "the tag matters at creation only", resourceType: hub.ClusterResourceType, subscription: experimenting(),
			tags: map[string]string{experiment.ClusterCreationDeadline: "soon"}, stored: map[string]string{experiment.ClusterCreationDeadline: "2h", experiment.ExactVersion: "4.20.8"},
			inEffect: map[string]string{experiment.ClusterCreationDeadline: "2h"},
		},
		"kept": {
			reason: "a value in effect is kept even if it is not valid any more, one that is not in effect is validated", resourceType: hub.ClusterResourceType, subscription: experimenting(),
			tags:     map[string]string{"ARO-HCP.experimental.cluster.single-replica": "true", experiment.ClusterDeletionDeadline: "2h"},
			stored:   map[string]string{experiment.SingleReplica: "true", experiment.ClusterDeletionDeadline: "1h"},
			inEffect: map[string]string{experiment.SingleReplica: "true", experiment.ClusterDeletionDeadline: "2h"},
		},
		"not in effect": {
			reason: "a value that is not in effect is validated", resourceType: hub.ClusterResourceType, subscription: experimenting(),
			tags: map[string]string{experiment.SingleReplica: "true"}, stored: map[string]string{experiment.SizeOverride: "true"},
			want: []apierror.Violation{violation(tag(experiment.SingleReplica), `Invalid value: "true": must be SingleReplica or empty`)},
		},
		"changed": {
			reason: "a changed tag is validated", resourceType: hub.ClusterResourceType, subscription: experimenting(),
			tags: map[string]string{experiment.SingleReplica: "yes"}, stored: map[string]string{experiment.SingleReplica: "true"},
			want: []apierror.Violation{violation(tag(experiment.SingleReplica), `Invalid value: "yes": must be SingleReplica or empty`)},
		},
		"other prefix": {
			reason: "tags of node pools mean nothing on clusters", resourceType: hub.ClusterResourceType, subscription: experimenting(),
			tags: map[string]string{experiment.NodePoolCreationDeadline: "soon", "aro-hcp.experimental.fast": "x"},
		},
		"node pool": {
			reason: "tags of clusters mean nothing on node pools", resourceType: hub.NodePoolResourceType, subscription: experimenting(),
			tags:     map[string]string{experiment.SingleReplica: "true", experiment.NodePoolCreationDeadline: "90m"},
			inEffect: map[string]string{experiment.NodePoolCreationDeadline: "90m"},
		},
		"foreign registry": {
			reason: "an image is in a repository that the region allows", resourceType: hub.ClusterResourceType, subscription: experimenting(),
			tags: map[string]string{experiment.ControlPlaneOperatorImage: strings.Replace(operatorImage, "quay.io/hypershift/", "quay.io/hypershift-2/", 1)},
			want: []apierror.Violation{violation(tag(experiment.ControlPlaneOperatorImage), `Invalid value: "`+strings.Replace(operatorImage, "quay.io/hypershift/", "quay.io/hypershift-2/", 1)+
				`": must be in one of the repositories quay.io/hypershift, quay.io/openshift-release-dev, quay.io/redhat-user-workloads, registry.redhat.io`)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			resource := &hub.Resource{Type: tc.resourceType, Tags: tc.tags}
			var stored *hub.Resource
			if tc.stored != nil {
				stored = &hub.Resource{Type: tc.resourceType, Experiments: tc.stored, Tags: tc.before}
			}
			if diff := cmp.Diff(tc.want, rules(t).ApplyExperiments(resource, stored, tc.subscription)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.inEffect, resource.Experiments); diff != "" && tc.want == nil {
				t.Errorf("in effect, %s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestExactReleaseOfVersion: the exact version is a release of the cluster's version.
func TestExactReleaseOfVersion(t *testing.T) {
	for exact, ok := range map[string]bool{"4.20.8": true, "4.20.9-rc.1+build": true, "4.21.0": false} {
		cluster := validCluster()
		cluster.Experiments = map[string]string{experiment.ExactVersion: exact}
		found := rules(t).Cluster(validation.ClusterChange{New: cluster, Subscription: experimenting()})
		if (len(found) == 0) != ok || !ok && found[0].Field != "tags["+experiment.ExactVersion+"]" {
			t.Errorf("%s: %v", exact, found)
		}
	}
}

func TestExactVersionSyntax(t *testing.T) {
	for text, ok := range map[string]bool{
		"4.20.8": true, "4.20.8-0.nightly-2026-03-02-101500": true, "4.20.8+a.1-b": true, "4.20.8-rc.1+01": true,
		"4.20": false, "v4.20.8": false, "4.20.08": false, "4.20.8+": false, "4.20.8+a..b": false, "4.20.8+ä": false, "4.20.8-01": false, "4.20.8 ": false,
	} {
		resource := &hub.Resource{Type: hub.ClusterResourceType, Tags: map[string]string{experiment.ExactVersion: text}}
		if found := rules(t).ApplyExperiments(resource, nil, experimenting()); (len(found) == 0) != ok {
			t.Errorf("%q: %v", text, found)
		}
	}
}
