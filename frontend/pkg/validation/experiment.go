package validation

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/api/hub"
)

// experimentalPrefix starts the tags that steer the service.
const experimentalPrefix = "aro-hcp.experimental."

// exactVersionTag has a value that must fit the cluster's version.
const exactVersionTag = experimentalPrefix + "cluster.control-plane-exact-version"

// experiments are the experimental tags of a type of resource, in lower case, with what says what is wrong with a value.
type experiments map[string]func(value string) string

// clusterExperiments are the experimental tags of a cluster.
var clusterExperiments = experiments{
	experimentalPrefix + "cluster.single-replica":                        isBoolean,
	experimentalPrefix + "cluster.size-override":                         isSize,
	experimentalPrefix + "cluster.control-plane-operator-image-override": isImage,
	exactVersionTag: isExactVersion,
	experimentalPrefix + "cluster.max-creation-duration": isDuration,
	experimentalPrefix + "cluster.max-deletion-duration": isDuration,
}

// nodePoolExperiments are the experimental tags of a node pool.
var nodePoolExperiments = experiments{
	experimentalPrefix + "nodepool.max-creation-duration": isDuration,
}

func (r *Rules) experiment(report *report, key, value string, experiments experiments, subscription *hub.Subscription) {
	lower := strings.ToLower(key)
	if !strings.HasPrefix(lower, experimentalPrefix) {
		return
	}
	field := "tags[" + key + "]"
	check, known := experiments[lower]
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

// exactVersion: the release that a tag names is one of the cluster's version.
func exactVersion(report *report, cluster *hub.Cluster) {
	wanted, ok := parseVersion(cluster.Properties.Version.ID, 2)
	if !ok {
		return
	}
	for key, value := range cluster.Tags {
		if !strings.EqualFold(key, exactVersionTag) {
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

// maxDeadline is the latest deadline of an operation: then its record expires.
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
