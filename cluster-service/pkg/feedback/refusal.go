package feedback

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	workv1 "open-cluster-management.io/api/work/v1"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
)

// Refusal is the permanent refusal of a manifest by the API server of the management cluster: only a person can change it.
type Refusal struct {
	// Reason is one of the reasons of maestroapi.ConditionRefused.
	Reason string `json:"reason"`
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	// Fields are the refused fields of the manifest, if the API server names them.
	Fields []string `json:"fields,omitempty"`
	// Message is the API server's message.
	Message string `json:"message"`
	// Version is the version of the Maestro resource that is refused.
	Version int64 `json:"version"`
}

// readRefusal reads the refusal of a manifest, which only hcpmesh's agent reports. The first refused manifest counts. version is the version
// that was not applied: the refusal of an earlier one says nothing about it.
func (o *Observed) readRefusal(manifest *workv1.ManifestCondition, version int64) {
	refused := meta.FindStatusCondition(manifest.Conditions, maestroapi.ConditionRefused)
	if o.Refusal != nil || refused == nil || refused.Status != metav1.ConditionTrue || refused.ObservedGeneration != version {
		return
	}
	fields, text := maestroapi.ParseRefusal(refused.Message)
	r := &Refusal{Reason: clip(refused.Reason), Kind: clip(manifest.ResourceMeta.Kind), Name: clip(manifest.ResourceMeta.Name), Message: clip(text), Version: version}
	for _, field := range fields[:min(len(fields), maestroapi.MaxRefusedFields)] {
		r.Fields = append(r.Fields, clip(field))
	}
	o.Refusal = r
}
