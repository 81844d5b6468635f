package seal

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// SecretAnnotation marks a sealed Secret. Its value is the ID of the key that sealed it.
const SecretAnnotation = "maestro.hcpmesh.io/sealed-with-key"

// ErrClearSecret is returned for a Secret whose values are not sealed.
var ErrClearSecret = errors.New("the values of the Secret are not sealed for the management cluster")

// SealSecret seals the values of a Secret in a work, given as unstructured content, with the public key of the management cluster. The cluster's
// agent opens them when it applies the Secret. Maestro, its database, the MQTT broker and the clients of Maestro's APIs have only the sealed values.
// A value is bound to the management cluster, the namespace and the name of the Secret, and its key. A Secret without values stays as it is.
func SealSecret(secret map[string]any, cluster string, keys *PublicKeys) error {
	if _, exists := secret["stringData"]; exists {
		return errors.New("stringData: a Secret is sealed only with data")
	}
	data, _ := secret["data"].(map[string]any)
	if len(data) == 0 {
		return nil
	}
	sealed := make(map[string]any, len(data))
	for key, value := range data {
		content, err := decodeValue(key, value)
		if err != nil {
			return err
		}
		text, err := keys.Seal(secretPurpose(secret, cluster, key), content)
		if err != nil {
			return fmt.Errorf("data[%s]: seal the value: %w", key, err)
		}
		sealed[key] = base64.StdEncoding.EncodeToString(text)
	}
	metadata, _ := secret["metadata"].(map[string]any)
	if metadata == nil {
		return errors.New("metadata: Required value")
	}
	annotations, _ := metadata["annotations"].(map[string]any)
	if annotations == nil {
		annotations = map[string]any{}
		metadata["annotations"] = annotations
	}
	annotations[SecretAnnotation] = keys.ID()
	secret["data"] = sealed
	return nil
}

// OpenSecret opens the values of a sealed Secret, given as unstructured content, and removes the annotation. It returns ErrClearSecret for a
// Secret with values that are not sealed, and an error with ErrInvalid for values that were not sealed for this Secret of
// the management cluster. The Secret does not change if there is an error.
func OpenSecret(secret map[string]any, cluster string, keys *PrivateKeys) error {
	data, _ := secret["data"].(map[string]any)
	clear, _ := secret["stringData"].(map[string]any)
	metadata, _ := secret["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	id, isSealed := annotations[SecretAnnotation]
	switch {
	case len(clear) > 0, len(data) > 0 && !isSealed:
		return ErrClearSecret
	case len(data) == 0:
		return nil
	}
	opened := make(map[string]any, len(data))
	for key, value := range data {
		text, err := decodeValue(key, value)
		if err != nil {
			return err
		}
		content, err := keys.Open(secretPurpose(secret, cluster, key), text)
		if err != nil {
			return fmt.Errorf("data[%s], sealed with key %v: %w", key, id, err)
		}
		opened[key] = base64.StdEncoding.EncodeToString(content)
	}
	delete(annotations, SecretAnnotation)
	if len(annotations) == 0 {
		delete(metadata, "annotations")
	}
	secret["data"] = opened
	return nil
}

func decodeValue(key string, value any) ([]byte, error) {
	text, _ := value.(string)
	content, err := base64.StdEncoding.DecodeString(text)
	if err != nil || text == "" {
		return nil, fmt.Errorf("data[%s]: the value is not base64", key) // the value may be a secret
	}
	return content, nil
}

// secretPurpose binds a value to its place. None of the parts can contain a slash.
func secretPurpose(secret map[string]any, cluster, key string) string {
	metadata, _ := secret["metadata"].(map[string]any)
	namespace, _ := metadata["namespace"].(string)
	name, _ := metadata["name"].(string)
	return strings.Join([]string{"secret", cluster, namespace, name, key}, "/")
}
