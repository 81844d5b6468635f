package installation

import (
	"context"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
)

// Agent is what the chart of the Maestro agent expects in its namespace, besides what the chart itself has.
type Agent struct {
	// Certificate and Key are files: the agent's certificate at the MQTT broker, and its key. The first DNS name of the certificate is the
	// name of the consumer.
	Certificate, Key string
	// SecretsKey is the file with the private keyset that opens sealed Secrets.
	SecretsKey string
	// Authorities are the certificate authorities that the agent trusts besides those of its image, in PEM: that of the MQTT broker at
	// least. The keys are names of files.
	Authorities map[string]string
}

// SupplyAgent creates or replaces the Secrets and the ConfigMap of the agent, and keeps the Secrets equal to their files. The namespace
// must exist: the chart `cluster` has it.
func SupplyAgent(ctx context.Context, secrets *Secrets, agent Agent) error {
	const namespace = string(mesh.MaestroAgent)
	if err := secrets.trust(ctx, namespace, agent.Authorities); err != nil {
		return err
	}
	if err := secrets.Keep(ctx, namespace, namespace+"-mqtt-identity", map[string]string{"tls.crt": agent.Certificate, "tls.key": agent.Key}); err != nil {
		return err
	}
	return secrets.Keep(ctx, namespace, namespace+"-keys", map[string]string{"secrets-key": agent.SecretsKey})
}
