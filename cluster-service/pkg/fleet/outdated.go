package fleet

// rendered are the works whose content follows from the desired state at any time; that of the others is fixed when they
// are made.
func (t *ClusterAggregate) rendered() []*Work {
	var works []*Work
	for _, w := range t.Works {
		if !w.Deleting() && (w.Kind == Namespaces || w.Kind == HostedCluster || w.Kind == NodePoolWork) {
			works = append(works, w)
		}
	}
	return works
}

// Outdated says whether a work of the aggregate would be rendered differently now.
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
	return false, nil
}

// Applied says whether the management cluster has all of the aggregate's desired content.
func Applied(t *ClusterAggregate) bool {
	for _, w := range t.rendered() {
		if !w.Applied() {
			return false
		}
	}
	return true
}

// ApplyFailed says whether a work of the aggregate was refused, by Maestro or by the management cluster.
func ApplyFailed(t *ClusterAggregate) bool {
	for _, w := range t.rendered() {
		if w.Refused || w.Observed.Applied.Status == "False" {
			return true
		}
	}
	return false
}
