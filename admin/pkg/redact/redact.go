// Package redact takes secrets out of what admin shows. It knows where the fleet's manifests keep them, and keeps the
// shape: who looks for a missing key still sees which keys there are.
package redact

import (
	"encoding/json"
)

// Removed stands in the place of a secret.
const Removed = "(removed)"

// Manifest cleans a Kubernetes object: the values of a Secret's data, and the copy of it that `kubectl apply` leaves in an
// annotation. What is not an object, or cannot be read, is replaced as a whole.
func Manifest(manifest json.RawMessage) json.RawMessage {
	var object map[string]any
	if err := json.Unmarshal(manifest, &object); err != nil {
		return json.RawMessage(`"` + Removed + `"`)
	}
	redactObject(object)
	// What was decoded can be encoded.
	out, _ := json.Marshal(object)
	return out
}

const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

func redactObject(object map[string]any) {
	if metadata, ok := object["metadata"].(map[string]any); ok {
		if annotations, ok := metadata["annotations"].(map[string]any); ok && annotations[lastApplied] != nil {
			annotations[lastApplied] = Removed
		}
	}
	// A list holds objects of its own.
	if items, ok := object["items"].([]any); ok {
		for _, item := range items {
			if inner, ok := item.(map[string]any); ok {
				redactObject(inner)
			}
		}
	}
	if object["kind"] != "Secret" {
		return
	}
	for _, field := range []string{"data", "stringData"} {
		values, ok := object[field].(map[string]any)
		if !ok {
			if object[field] != nil {
				object[field] = Removed
			}
			continue
		}
		for key := range values {
			values[key] = Removed
		}
	}
}
