package istiopolicy

import (
	"bytes"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// YAML returns the objects as documents of one YAML stream, without status and creation time.
func YAML(objects []runtime.Object) ([]byte, error) {
	var stream bytes.Buffer
	for i, object := range objects {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return nil, fmt.Errorf("convert object %d: %w", i, err)
		}
		delete(content, "status")
		if metadata, ok := content["metadata"].(map[string]any); ok {
			delete(metadata, "creationTimestamp")
		}
		document, err := yaml.Marshal(content)
		if err != nil {
			return nil, fmt.Errorf("marshal object %d: %w", i, err)
		}
		if i > 0 {
			stream.WriteString("---\n")
		}
		stream.Write(document)
	}
	return stream.Bytes(), nil
}
