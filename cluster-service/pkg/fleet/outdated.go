package fleet

import "github.com/hcpmesh/hcpmesh/internal/clusterstatus"

// rendered returns the works whose content follows from the desired state. The content of the other works is fixed when
// they are created.
func (t *ClusterAggregate) rendered() []*Work {
	var works []*Work
	for _, w := range t.Works {
		if !w.Deleting() && w.Desired > 0 && w.Rendered() {
			works = append(works, w)
		}
	}
	return works
}

// Rendered reports whether the content of the work follows from the desired state, so that Digest is the digest of the planned content.
func (w *Work) Rendered() bool {
	return w.Kind == Namespaces || w.Kind == HostedCluster || w.Kind == NodePoolWork
}

// Outdated reports whether a work of the aggregate would be rendered differently now.
func Outdated(t *ClusterAggregate, renderer Renderer) (bool, error) {
	if t.Cluster == nil || t.Cluster.Deleting() || t.Cluster.Shard == "" {
		return false, nil
	}
	for _, w := range t.rendered() {
		digest, err := renderer.Digest(t, w)
		if err != nil {
			return false, err
		}
		if digest != w.Digest {
			return true, nil
		}
	}
	// The same content may leave out other ranges.
	return omittedText(renderer.OmittedRanges(t.Cluster)) != t.condition(clusterstatus.InternalRangesAllowed).GetMessage(), nil
}

// Applied reports whether the management cluster has the desired content of all rendered works.
func Applied(t *ClusterAggregate) bool {
	for _, w := range t.rendered() {
		if !w.Applied() {
			return false
		}
	}
	return true
}

// ApplyFailed reports whether Maestro or the management cluster rejects a work of the aggregate.
func ApplyFailed(t *ClusterAggregate) bool {
	for _, w := range t.rendered() {
		if w.Refused || w.Observed.Applied.Status == "False" {
			return true
		}
	}
	return false
}
