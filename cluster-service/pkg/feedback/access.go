package feedback

import (
	"encoding/base64"
	"encoding/pem"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	workv1 "open-cluster-management.io/api/work/v1"
)

// OIDCClient is a component of a hosted cluster that signs users in with an external issuer.
type OIDCClient struct {
	Component string `json:"component"`
	Namespace string `json:"namespace"`
	// Available and Degraded are the statuses of its conditions of these types. Reason is the reason of Degraded.
	Available string `json:"available,omitempty"`
	Degraded  string `json:"degraded,omitempty"`
	Reason    string `json:"reason,omitempty"`
}

// reasonsWithoutSecret are the reasons with which the console's operator reports that it has no secret: it cannot read the
// secret, its configuration names no secret, or it has no client yet.
var reasonsWithoutSecret = []string{"OIDCClientSecretGet", "OIDCClientMissingSecret", "OIDCClientConfig"}

// OIDCClientHasSecret reports whether a component has the secret of its client. It returns false for a component that is not
// reported.
func (o *Observed) OIDCClientHasSecret(component, namespace string) bool {
	i := slices.IndexFunc(o.OIDCClients, func(c OIDCClient) bool { return c.Component == component && c.Namespace == namespace })
	if i < 0 {
		return false
	}
	c := o.OIDCClients[i]
	known := c.Available == string(metav1.ConditionTrue) || c.Degraded == string(metav1.ConditionTrue) || c.Degraded == string(metav1.ConditionFalse)
	return known && !slices.Contains(reasonsWithoutSecret, c.Reason)
}

// maxOIDCClients is HyperShift's limit.
const maxOIDCClients = 20

func oidcClients(v *workv1.FeedbackValue) []OIDCClient {
	type entry struct {
		ComponentName      string      `json:"componentName"`
		ComponentNamespace string      `json:"componentNamespace"`
		Conditions         []condition `json:"conditions"`
	}
	var clients []OIDCClient
	for _, e := range list[entry](v, maxOIDCClients) {
		if e.ComponentName == "" {
			continue
		}
		client := OIDCClient{Component: clip(e.ComponentName), Namespace: clip(e.ComponentNamespace)}
		for _, c := range e.Conditions {
			switch c.Type {
			case Available:
				client.Available = clip(c.Status)
			case Degraded:
				client.Degraded, client.Reason = clip(c.Status), clip(c.Reason)
			}
		}
		clients = append(clients, client)
	}
	return clients
}

// certificates decodes base64 of PEM and returns only the certificates in it, so that no other content of a Secret leaves
// the management cluster this way.
func certificates(v *workv1.FeedbackValue) string {
	encoded := text(v)
	if encoded == "" || len(encoded) > maxCertificates {
		return ""
	}
	decoded, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return ""
	}
	var found []byte
	for block, rest := pem.Decode(decoded); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			found = append(found, pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})...)
		}
	}
	return string(found)
}
