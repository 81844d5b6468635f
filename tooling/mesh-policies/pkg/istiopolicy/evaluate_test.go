package istiopolicy_test

import (
	"slices"
	"strings"

	securityapi "istio.io/api/security/v1beta1"
	security "istio.io/client-go/pkg/apis/security/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
)

// request is a call as Istio sees it.
type request struct {
	server mesh.Peer
	// client is the principal of the client; namespace is its namespace, if client is empty.
	client, namespace  string
	method, path, port string
}

func principal(client mesh.Peer) string {
	switch client {
	case mesh.ARMFrontDoor:
		return options().TrustDomain + "/ns/ingress/sa/arm"
	case mesh.Engineers:
		return options().TrustDomain + "/ns/ingress/sa/admin"
	case mesh.ManagementClusters:
		return options().TrustDomain + "/ns/ingress/sa/tunnels"
	}
	return options().TrustDomain + "/ns/" + string(client) + "/sa/" + string(client)
}

// allows evaluates AuthorizationPolicies as Istio's reference of them describes: a call needs one rule of an ALLOW policy that
// selects the workload. An empty list of a rule matches everything, and the principal * every client with an identity. It covers the fields that Render uses.
func allows(objects []runtime.Object, call request) bool {
	for _, object := range objects {
		o, ok := object.(*security.AuthorizationPolicy)
		if !ok || o.Namespace != string(call.server) || o.Spec.Action != securityapi.AuthorizationPolicy_ALLOW {
			continue
		}
		if o.Spec.Selector != nil && o.Spec.Selector.MatchLabels["app.kubernetes.io/name"] != string(call.server) {
			continue
		}
		for _, rule := range o.Spec.Rules {
			from := slices.ContainsFunc(rule.From, func(f *securityapi.Rule_From) bool {
				return (matches(f.Source.Principals, call.client) || slices.Equal(f.Source.Principals, []string{"*"}) && call.client != "") && matches(f.Source.Namespaces, call.namespace)
			})
			to := slices.ContainsFunc(rule.To, func(t *securityapi.Rule_To) bool {
				return matches(t.Operation.Methods, call.method) && matches(t.Operation.Ports, call.port) &&
					!slices.Contains(t.Operation.NotPorts, call.port) && matchesPath(t.Operation.Paths, call.path) &&
					(len(t.Operation.NotPaths) == 0 || !matchesPath(t.Operation.NotPaths, call.path))
			})
			if from && to {
				return true
			}
		}
	}
	return false
}

func matches(values []string, value string) bool {
	return len(values) == 0 || slices.Contains(values, value)
}

// matchesPath compares a path with path templates, in which {*} stands for one segment.
func matchesPath(templates []string, path string) bool {
	return len(templates) == 0 || slices.ContainsFunc(templates, func(template string) bool {
		want, got := strings.Split(template, "/"), strings.Split(path, "/")
		return slices.EqualFunc(want, got, func(w, g string) bool { return w == g || w == "{*}" && g != "" })
	})
}
