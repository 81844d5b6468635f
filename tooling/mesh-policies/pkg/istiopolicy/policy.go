// Package istiopolicy renders the authorization table of a region (mesh.Rules) as Istio objects.
//
// Istio refuses a call before it reaches the server. The server authorizes the call again with the same table, because Istio
// cannot read the fields of gRPC messages: a Condition of the table has no form in Istio, and its grant is rendered without it.
package istiopolicy

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	securityapi "istio.io/api/security/v1beta1"
	typeapi "istio.io/api/type/v1beta1"
	security "istio.io/client-go/pkg/apis/security/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
)

// Options are the facts of a service cluster that the table does not contain. All fields are required.
type Options struct {
	// TrustDomain is the trust domain of the workloads' certificates.
	TrustDomain string
	// Workloads are the workloads that run in the service cluster. The table's other servers are services of Azure.
	Workloads []mesh.Peer
	// ARMGateway is the service account of the ingress gateway that takes the place of the ARM front door of a local region, AdminGateway
	// that of the gateway that sends the requests of engineers, and TunnelGateway that of the gateway of management clusters. The servers authorize
	// engineers and management clusters by token.
	ARMGateway, AdminGateway, TunnelGateway ServiceAccount
	// PortalPort is the port of the SRE portal, which is a listener of admin. The calls of the table to admin use other ports.
	PortalPort uint16
	// OperationsPort is the port of every workload with /metrics, /healthz and /readyz. The calls of the table use other ports.
	OperationsPort uint16
	// MonitoringNamespace is the namespace of the Prometheus that reads /metrics.
	MonitoringNamespace string
}

// ServiceAccount is a service account of Kubernetes.
type ServiceAccount struct{ Namespace, Name string }

// principal returns the principal of the account in AuthorizationPolicies: the SPIFFE ID without its scheme.
func (s ServiceAccount) principal(trustDomain string) string {
	return trustDomain + "/ns/" + s.Namespace + "/sa/" + s.Name
}

func (s ServiceAccount) missing() bool { return s.Namespace == "" || s.Name == "" }

// validate returns an error that names the first missing option.
func (o Options) validate() error {
	missing := map[string]bool{
		"TrustDomain": o.TrustDomain == "", "Workloads": len(o.Workloads) == 0, "ARMGateway": o.ARMGateway.missing(), "AdminGateway": o.AdminGateway.missing(),
		"TunnelGateway": o.TunnelGateway.missing(),
		"PortalPort":    o.PortalPort == 0, "OperationsPort": o.OperationsPort == 0, "MonitoringNamespace": o.MonitoringNamespace == "",
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		if missing[name] {
			return fmt.Errorf("option %s is required", name)
		}
	}
	for _, workload := range o.Workloads {
		if !slices.Contains(mesh.Peers(), workload) {
			return fmt.Errorf("option Workloads: a region has no workload %q", workload)
		}
	}
	return nil
}

// Render returns the Istio objects of the workloads, each in the namespace of its workload, in the order of Workloads:
//
//   - a PeerAuthentication that requires mutual TLS;
//   - an AuthorizationPolicy without rules, which refuses every call that no other policy allows;
//   - an AuthorizationPolicy that allows Prometheus to read /metrics;
//   - an AuthorizationPolicy that allows the calls of the table, if it allows any.
//
// It returns an error for a table that Istio would enforce differently: see pathRule.
func Render(rules []mesh.Rule, options Options) ([]runtime.Object, error) {
	if err := options.validate(); err != nil {
		return nil, err
	}
	var objects []runtime.Object
	for _, workload := range options.Workloads {
		scope := ports{not: []string{port(options.OperationsPort)}}
		if workload == mesh.Admin {
			scope.not = append(scope.not, port(options.PortalPort))
		}
		calls, err := allowedCalls(workload, rules, scope, options)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", workload, err)
		}
		if workload == mesh.Admin {
			pages, err := allowedCalls(mesh.Portal, rules, ports{only: []string{port(options.PortalPort)}}, options)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", mesh.Portal, err)
			}
			calls = append(calls, pages...)
		}
		objects = append(objects,
			&security.PeerAuthentication{
				TypeMeta: typeMeta("PeerAuthentication"), ObjectMeta: objectMeta(workload, "strict"),
				Spec: securityapi.PeerAuthentication{Mtls: &securityapi.PeerAuthentication_MutualTLS{Mode: securityapi.PeerAuthentication_MutualTLS_STRICT}},
			},
			authorizationPolicy(workload, "deny-by-default", nil),
			authorizationPolicy(workload, "metrics", []*securityapi.Rule{{
				From: []*securityapi.Rule_From{{Source: &securityapi.Source{Namespaces: []string{options.MonitoringNamespace}}}},
				To: []*securityapi.Rule_To{{Operation: &securityapi.Operation{
					Ports: []string{port(options.OperationsPort)}, Methods: []string{"GET"}, Paths: []string{"/metrics"}}}},
			}}),
		)
		if len(calls) > 0 {
			objects = append(objects, authorizationPolicy(workload, "calls", calls))
		}
	}
	return objects, nil
}

// ports limits calls to the ports in only, or to those that are not in not.
type ports struct{ only, not []string }

// allowedCalls returns one rule for each set of clients of a server, so that a policy reads like the table.
func allowedCalls(server mesh.Peer, rules []mesh.Rule, scope ports, options Options) ([]*securityapi.Rule, error) {
	rules = slices.DeleteFunc(slices.Clone(rules), func(r mesh.Rule) bool { return r.Server != server })
	// operations maps the principals of a set of clients, separated by spaces, to what they may call.
	operations := map[string][]*securityapi.Operation{}
	skip, err := redundant(rules, options)
	if err != nil {
		return nil, err
	}
	for _, rule := range rules {
		if rule.Protocol == mesh.HTTP && skip[rule.Method] {
			continue
		}
		operation, err := operationOf(rule)
		if err != nil {
			return nil, err
		}
		operation.NotPaths = excluded(rule, rules, options)
		if principals := principalsOf(rule, options); len(principals) > 0 {
			key := strings.Join(principals, " ")
			operations[key] = addOperation(operations[key], operation)
		}
	}
	var calls []*securityapi.Rule
	for _, principals := range slices.Sorted(maps.Keys(operations)) {
		call := &securityapi.Rule{From: []*securityapi.Rule_From{{Source: &securityapi.Source{Principals: strings.Fields(principals)}}}}
		for _, operation := range operations[principals] {
			operation.Ports, operation.NotPorts = scope.only, scope.not
			call.To = append(call.To, &securityapi.Rule_To{Operation: operation})
		}
		calls = append(calls, call)
	}
	return calls, nil
}

// principalsOf returns the principals of the clients of a rule, sorted. The principal * stands for every workload of the mesh.
func principalsOf(rule mesh.Rule, options Options) []string {
	var principals []string
	for _, grant := range rule.Clients {
		account := ServiceAccount{Namespace: string(grant.Client), Name: string(grant.Client)}
		switch grant.Client {
		case mesh.Anybody:
			return []string{"*"}
		case mesh.ARMFrontDoor:
			account = options.ARMGateway
		case mesh.Engineers:
			account = options.AdminGateway
		case mesh.ManagementClusters:
			account = options.TunnelGateway
		}
		principals = append(principals, account.principal(options.TrustDomain))
	}
	slices.Sort(principals)
	return slices.Compact(principals)
}

// addOperation adds the paths of an operation to one with the same methods.
func addOperation(all []*securityapi.Operation, operation *securityapi.Operation) []*securityapi.Operation {
	for _, present := range all {
		if slices.Equal(present.Methods, operation.Methods) && len(present.Paths) > 0 && len(operation.Paths) > 0 {
			present.Paths = slices.Compact(slices.Sorted(slices.Values(append(present.Paths, operation.Paths...))))
			return all
		}
	}
	return append(all, operation)
}

func authorizationPolicy(workload mesh.Peer, name string, rules []*securityapi.Rule) *security.AuthorizationPolicy {
	policy := &security.AuthorizationPolicy{TypeMeta: typeMeta("AuthorizationPolicy"), ObjectMeta: objectMeta(workload, name)}
	if rules != nil {
		policy.Spec.Selector = &typeapi.WorkloadSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": string(workload)}}
	}
	policy.Spec.Rules = rules
	return policy
}

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: security.SchemeGroupVersion.String(), Kind: kind}
}

// objectMeta returns the metadata of an object in the namespace of a workload, which has the workload's name.
func objectMeta(workload mesh.Peer, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: string(workload), Name: name, Labels: map[string]string{"app.kubernetes.io/part-of": "hcpmesh"}}
}

func port(number uint16) string { return strconv.Itoa(int(number)) }
