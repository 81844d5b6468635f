package dump

import (
	"encoding/json"
)

// removed replaces a secret.
const removed = "(removed)"

// redactManifest removes the values of Secrets, and the copy of an object that `kubectl apply` stores in an annotation. It replaces a
// manifest that is not an object as a whole, and keeps the structure of others, so that users still see which keys exist.
func redactManifest(manifest json.RawMessage) json.RawMessage {
	var object map[string]any
	if err := json.Unmarshal(manifest, &object); err != nil {
		return json.RawMessage(`"` + removed + `"`)
	}
	redactObject(object)
	// A decoded object can be encoded.
	out, _ := json.Marshal(object)
	return out
}

const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

func redactObject(object map[string]any) {
	if metadata, ok := object["metadata"].(map[string]any); ok {
		if annotations, ok := metadata["annotations"].(map[string]any); ok && annotations[lastApplied] != nil {
			annotations[lastApplied] = removed
		}
	}
	// A List contains objects.
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
				object[field] = removed
			}
			continue
		}
		for key := range values {
			values[key] = removed
		}
	}
}
