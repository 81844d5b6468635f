// Package credential creates administrator credentials locally: the private key, the certificate signing request and the
// kubeconfig. The key is never sent.
package credential

import (
	"errors"
	"fmt"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/certificaterequest"
	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
	"sigs.k8s.io/yaml"
)

// Request returns a key and a certificate signing request for the customer's administrator, both PEM.
func Request() (keyPEM, requestPEM []byte, err error) {
	return certificaterequest.New("system:customer-break-glass:system-admin", adminv1.LevelAdmin.Organization())
}

// EngineerRequest is Request for the SRE with an object ID in Microsoft Entra, and a level of access.
func EngineerRequest(objectID string, level adminv1.Level) (keyPEM, requestPEM []byte, err error) {
	return certificaterequest.New(hostedreport.EngineerPrefix+objectID, level.Organization())
}

// WithKey returns a kubeconfig with the key added to its users.
func WithKey(kubeconfig, keyPEM []byte) ([]byte, error) {
	var config map[string]any
	if err := yaml.Unmarshal(kubeconfig, &config); err != nil {
		return nil, fmt.Errorf("parsing the kubeconfig: %w", err)
	}
	users, _ := config["users"].([]any)
	for _, item := range users {
		named, _ := item.(map[string]any)
		if user, ok := named["user"].(map[string]any); ok {
			user["client-key-data"] = keyPEM // bytes are base64 in JSON, and so in YAML
			return yaml.Marshal(config)
		}
	}
	return nil, errors.New("invalid kubeconfig: it has no user")
}

// WithProxy returns a kubeconfig whose clients connect to its API servers through an HTTP proxy. Without a URL, it returns the kubeconfig
// unchanged.
func WithProxy(kubeconfig []byte, proxy string) ([]byte, error) {
	if proxy == "" {
		return kubeconfig, nil
	}
	var config map[string]any
	if err := yaml.Unmarshal(kubeconfig, &config); err != nil {
		return nil, fmt.Errorf("parsing the kubeconfig: %w", err)
	}
	clusters, _ := config["clusters"].([]any)
	if len(clusters) == 0 {
		return nil, errors.New("invalid kubeconfig: it has no cluster")
	}
	for _, item := range clusters {
		named, _ := item.(map[string]any)
		cluster, ok := named["cluster"].(map[string]any)
		if !ok {
			return nil, errors.New("invalid kubeconfig: it has an empty cluster")
		}
		cluster["proxy-url"] = proxy
	}
	return yaml.Marshal(config)
}
