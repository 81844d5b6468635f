package feedback

import (
	"time"

	workv1 "open-cluster-management.io/api/work/v1"
)

// Namespace is the reported state of the namespace in which HyperShift runs a control plane. The work of the HostedCluster reads
// it and never applies it. The zero value means that nothing was reported.
type Namespace struct {
	Name string `json:"name,omitempty"`
	// Missing is true if the namespace does not exist. All other values but the name are then absent.
	Missing bool `json:"missing,omitempty"`
	// UID is its identity. Volumes do not outlive their namespace, so a namespace with another UID has another etcd.
	UID string `json:"uid,omitempty"`
	// CreateTime is the time of its creation. DeleteTime is the time since which it is being deleted; zero if it is not.
	CreateTime time.Time `json:"createTime,omitzero"`
	DeleteTime time.Time `json:"deleteTime,omitzero"`
}

// BeingDeleted reports whether the namespace exists and is being deleted. Kubernetes has no way back from that.
func (n *Namespace) BeingDeleted() bool { return n.UID != "" && !n.DeleteTime.IsZero() }

const (
	kindHostedCluster = "HostedCluster"
	kindNamespace     = "Namespace"
)

// hasHostedCluster reports whether one of the manifests is a HostedCluster. A namespace beside it is the one of its control plane.
func hasHostedCluster(manifests []workv1.ManifestCondition) bool {
	for i := range manifests {
		if manifests[i].ResourceMeta.Kind == kindHostedCluster {
			return true
		}
	}
	return false
}

func (o *Observed) readNamespace(manifest *workv1.ManifestCondition) {
	o.Namespace = Namespace{Name: clip(manifest.ResourceMeta.Name)}
	if isMissing(manifest) {
		o.Namespace.Missing = true
		return
	}
	for i := range manifest.StatusFeedbacks.Values {
		switch v := &manifest.StatusFeedbacks.Values[i]; v.Name {
		case nameUID:
			o.Namespace.UID = clip(text(v))
		case nameCreateTime:
			o.Namespace.CreateTime = moment(text(v))
		case nameDeleteTime:
			o.Namespace.DeleteTime = moment(text(v))
		}
	}
}

// moment reads a time; the zero time if it is malformed.
func moment(text string) time.Time {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}
	}
	return at.UTC()
}
