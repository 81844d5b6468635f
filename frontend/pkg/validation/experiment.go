package validation

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/api/experiment"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/config"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// experiments are the experimental tags of a resource type.
type experiments struct {
	// prefix begins the names of the tags.
	prefix string
	tags   map[string]experimentalTag
}

// experimentalTag is one tag. All tags except those with emptyInvalid may be empty, which is the same as absent.
type experimentalTag struct {
	// check returns why a value is invalid, or the empty string. The value is not empty unless emptyInvalid is set.
	check        func(offer *config.Config, value string) string
	emptyInvalid bool
	// createOnly is set for a tag that has no effect after the creation. An update neither validates nor changes it.
	createOnly bool
	// fixed is set for a tag whose effect cannot change after the creation, because HyperShift rejects the change.
	fixed bool
}

// experimentsOf returns the experimental tags of a resource type; none for a type without tags.
func experimentsOf(resourceType string) experiments {
	switch resourceType {
	case hub.ClusterResourceType:
		return experiments{experiment.ClusterPrefix, map[string]experimentalTag{
			experiment.SingleReplica:             {check: only(experiment.SingleReplicaValue), fixed: true},
			experiment.SizeOverride:              {check: only(experiment.MinimalSize)},
			experiment.ControlPlaneOperatorImage: {check: operatorImage},
			experiment.ExactVersion:              {check: exactVersion, emptyInvalid: true},
			experiment.ClusterCreationDeadline:   {check: deadline, createOnly: true},
			experiment.ClusterDeletionDeadline:   {check: deadline},
		}}
	case hub.NodePoolResourceType:
		return experiments{experiment.NodePoolPrefix, map[string]experimentalTag{
			experiment.NodePoolCreationDeadline: {check: deadline, createOnly: true},
		}}
	}
	return experiments{}
}

// ApplyExperiments sets the experimental tags in effect from the resource's tags, and returns their violations. Without
// the feature no tag is in effect or validated, except that a fixed one stays in effect. stored is nil for a new resource.
//
// The result is validated before the rest of the resource: a request with a violation gets no other ones.
func (r *Rules) ApplyExperiments(resource, stored *hub.Resource, subscription *hub.Subscription) []apierror.Violation {
	known := experimentsOf(resource.Type)
	if known.prefix == "" || !subscription.HasFeature(ExperimentalFeature) {
		resource.Experiments = known.stay(stored, func(tag experimentalTag) bool { return tag.fixed })
		return nil
	}
	found := &report{}
	inEffect := map[string]string{}
	for _, key := range sortedKeys(resource.Tags) {
		name, value := strings.ToLower(key), resource.Tags[key]
		if !strings.HasPrefix(name, known.prefix) {
			continue
		}
		tag, ok := known.tags[name]
		switch {
		case !ok:
			unknown := &report{}
			unknown.invalid("tags["+key+"]", value, "is not an experimental tag; the tags are %s", strings.Join(slices.Sorted(maps.Keys(known.tags)), ", "))
			return unknown.violations()
		case tag.createOnly && stored != nil, value == "" && !tag.emptyInvalid:
			continue
		}
		inEffect[name] = strings.TrimSpace(value)
		// A value that is in effect was valid once. A new rule does not block changes of something else.
		kept := stored != nil && value != "" && stored.Experiments[name] == inEffect[name]
		if message := tag.check(r.offer, value); message != "" && !kept {
			found.invalid("tags["+name+"]", value, "%s", message)
		}
	}
	if stored != nil {
		for name, tag := range known.tags {
			if tag.fixed {
				tag.checkFixed(found, r.offer, name, inEffect[name], stored)
				delete(inEffect, name)
			}
		}
		maps.Copy(inEffect, known.stay(stored, func(tag experimentalTag) bool { return tag.fixed || tag.createOnly }))
	}
	resource.Experiments = nil
	if len(inEffect) > 0 {
		resource.Experiments = inEffect
	}
	return found.violations()
}

// stay returns the tags in effect of a stored resource, which may be nil, that are selected; nil if there are none.
func (e experiments) stay(stored *hub.Resource, selected func(experimentalTag) bool) map[string]string {
	var inEffect map[string]string
	for name, tag := range e.tags {
		if stored == nil || stored.Experiments[name] == "" || !selected(tag) {
			continue
		}
		if inEffect == nil {
			inEffect = map[string]string{}
		}
		inEffect[name] = stored.Experiments[name]
	}
	return inEffect
}

// checkFixed reports a valid value of a fixed tag that is neither in effect nor the value of the tag before. A tag that was set
// without the feature has no effect, and may stay.
func (t experimentalTag) checkFixed(found *report, offer *config.Config, name, value string, stored *hub.Resource) {
	before := ""
	for key, written := range stored.Tags {
		if strings.EqualFold(key, name) {
			before = written
		}
	}
	if value != stored.Experiments[name] && value != before && (value == "" || t.check(offer, value) == "") {
		found.invalid("tags["+name+"]", value, "cannot be changed after the creation")
	}
}

// exactRelease validates that the exact version in effect is a release of the cluster's version.
func exactRelease(report *report, cluster *hub.Cluster) {
	wanted, ok := parseVersion(cluster.Properties.Version.ID, 2)
	if !ok {
		return
	}
	text := cluster.Experiments[experiment.ExactVersion]
	if exact, ok := parseRelease(text); ok && exact.compare(wanted) != 0 {
		report.invalid("tags["+experiment.ExactVersion+"]", text, "must be a release of the version %s", wanted)
	}
}

// only returns the check of a tag with one value.
func only(value string) func(*config.Config, string) string {
	return func(_ *config.Config, text string) string {
		if text != value {
			return "must be " + value + " or empty"
		}
		return ""
	}
}

// operatorImage requires a digest, because a tag can be moved to another image, and a repository that management clusters accept.
func operatorImage(_ *config.Config, value string) string {
	repository, digest, _ := strings.Cut(strings.TrimSpace(value), "@")
	if !isDigest(digest) || !isRepository(repository) || !strings.Contains(repository, "/") || len(value) > 512 {
		return "must be an image with a digest and without a tag, as in quay.io/organization/name@sha256:…"
	}
	for _, allowed := range experiment.OperatorImageRepositories() {
		if strings.HasPrefix(repository, allowed+"/") {
			return ""
		}
	}
	return "must be in one of the repositories " + strings.Join(experiment.OperatorImageRepositories(), ", ")
}

func exactVersion(_ *config.Config, value string) string {
	if _, ok := parseRelease(value); !ok {
		return "must be of the form MAJOR.MINOR.PATCH, with an optional pre-release and build"
	}
	return ""
}

// The bounds of a deadline. Operation documents expire after the largest.
const (
	minDeadline = time.Minute
	maxDeadline = 7 * 24 * time.Hour
)

func deadline(_ *config.Config, value string) string {
	d, err := time.ParseDuration(value)
	switch {
	case err != nil || d < minDeadline:
		return "must be a duration of at least 1m, as in 90m"
	case d > maxDeadline:
		return fmt.Sprintf("must be at most %dh", int(maxDeadline.Hours()))
	}
	return ""
}
