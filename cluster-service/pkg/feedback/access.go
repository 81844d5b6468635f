package feedback

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	workv1 "open-cluster-management.io/api/work/v1"
)

// OIDCClient is a component of a hosted cluster that signs users in with an external issuer.
type OIDCClient struct {
	Component string `json:"component"`
	Namespace string `json:"namespace"`
	// Available and Degraded are its conditions of these types; Reason is the latter's.
	Available string `json:"available,omitempty"`
	Degraded  string `json:"degraded,omitempty"`
	Reason    string `json:"reason,omitempty"`
}

// The reasons with which the console's operator says that it has no secret: it cannot read it, it was told of none, or it
// knows of no client yet.
var reasonsWithoutSecret = []string{"OIDCClientSecretGet", "OIDCClientMissingSecret", "OIDCClientConfig"}

// OIDCClientHasSecret says whether a component was seen to have the secret of its client. One that is not reported was not.
func (o *Observed) OIDCClientHasSecret(component, namespace string) bool {
	i := slices.IndexFunc(o.OIDCClients, func(c OIDCClient) bool { return c.Component == component && c.Namespace == namespace })
	if i < 0 {
		return false
	}
	c := o.OIDCClients[i]
	known := c.Available == string(metav1.ConditionTrue) || c.Degraded == string(metav1.ConditionTrue) || c.Degraded == string(metav1.ConditionFalse)
	return known && !slices.Contains(reasonsWithoutSecret, c.Reason)
}

// maxOIDCClients is HyperShift's own bound.
const maxOIDCClients = 20

// oidcClients reads a list, or an object where an agent gave its only entry.
func oidcClients(v *workv1.FeedbackValue) []OIDCClient {
	if v.Value.JsonRaw == nil {
		return nil
	}
	type entry struct {
		ComponentName      string             `json:"componentName"`
		ComponentNamespace string             `json:"componentNamespace"`
		Conditions         []metav1.Condition `json:"conditions"`
	}
	raw := []byte(*v.Value.JsonRaw)
	var entries []entry
	if json.Unmarshal(raw, &entries) != nil {
		var one entry
		if json.Unmarshal(raw, &one) != nil || one.ComponentName == "" {
			return nil
		}
		entries = []entry{one}
	}
	var clients []OIDCClient
	for _, e := range entries[:min(len(entries), maxOIDCClients)] {
		c := OIDCClient{Component: clip(e.ComponentName), Namespace: clip(e.ComponentNamespace)}
		for _, condition := range e.Conditions {
			switch condition.Type {
			case "Available":
				c.Available = clip(string(condition.Status))
			case "Degraded":
				c.Degraded, c.Reason = clip(string(condition.Status)), clip(condition.Reason)
			}
		}
		clients = append(clients, c)
	}
	return clients
}

// certificates reads base64 of PEM. Of what is in it only the certificates are taken: nothing else may come up this way.
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
