package validation

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/api/experiment"
	"github.com/hcpmesh/hcpmesh/api/hub"
)

// experiments maps the lower-case experimental tags of a resource type to checks, which return why a value is invalid.
type experiments map[string]func(value string) string

// clusterExperiments lists the experimental tags of clusters.
var clusterExperiments = experiments{
	experiment.SingleReplica:             isBoolean,
	experiment.SizeOverride:              isSize,
	experiment.ControlPlaneOperatorImage: isImage,
	experiment.ExactVersion:              isExactVersion,
	experiment.ClusterCreationDeadline:   isDuration,
	experiment.ClusterDeletionDeadline:   isDuration,
}

// nodePoolExperiments lists the experimental tags of node pools.
var nodePoolExperiments = experiments{
	experiment.NodePoolCreationDeadline: isDuration,
}

func (r *Rules) experiment(report *report, key, value string, experiments experiments, subscription *hub.Subscription) {
	if !experiment.Is(key) {
		return
	}
	field := "tags[" + key + "]"
	check, known := experiments[strings.ToLower(key)]
	if !known {
		report.unsupported(field, key, slices.Sorted(maps.Keys(experiments))...)
		return
	}
	if !subscription.HasFeature(ExperimentalFeature) {
		report.forbidden(field, value, "needs the feature %s registered on the subscription", ExperimentalFeature)
		return
	}
	if message := check(value); message != "" {
		report.invalid(field, value, "%s", message)
	}
}

// exactVersion validates that the release in a tag belongs to the cluster's version.
func exactVersion(report *report, cluster *hub.Cluster) {
	wanted, ok := parseVersion(cluster.Properties.Version.ID, 2)
	if !ok {
		return
	}
	for key, value := range cluster.Tags {
		if !strings.EqualFold(key, experiment.ExactVersion) {
			continue
		}
		if exact, ok := parseVersion(value, 3); ok && exact.compare(wanted) != 0 {
			report.invalid("tags["+key+"]", value, "must be a release of the version %s", wanted)
		}
	}
}

func isBoolean(value string) string {
	if value != "true" && value != "false" {
		return "must be true or false"
	}
	return ""
}

func isSize(value string) string {
	if len(value) > 63 || !isDNSLabel(value) {
		return "must be the name of a size: lower-case letters, digits and '-', at most 63"
	}
	return ""
}

func isImage(value string) string {
	if !isImageReference(value) {
		return "must be an image with a tag or a digest, as in quay.io/organization/name@sha256:…"
	}
	return ""
}

func isExactVersion(value string) string {
	if _, ok := parseVersion(value, 3); !ok {
		return "must be of the form MAJOR.MINOR.PATCH"
	}
	return ""
}

// maxDeadline is the longest deadline of an operation. Operation documents expire after this time.
const maxDeadline = 7 * 24 * time.Hour

func isDuration(value string) string {
	d, err := time.ParseDuration(value)
	switch {
	case err != nil || d <= 0:
		return "must be a duration greater than zero, as in 90m"
	case d > maxDeadline:
		return fmt.Sprintf("must be at most %dh", int(maxDeadline.Hours()))
	}
	return ""
}
