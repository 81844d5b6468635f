// Package readrules lists what engineers with the level reader may read in a hosted cluster, in a management cluster and in the service cluster: everything
// but Secrets, as OpenShift's ClusterRole cluster-reader permits. RBAC grants it (the local runtime of HyperShift, package managementaccess, and the chart of
// gateway-grants), and the session gateway forwards nothing else.
package readrules

import (
	"slices"
	"strings"
)

// Rule permits get, list and watch of resources of an API group. A resource is `pods` or `pods/log`; the only resource `*` stands for all
// resources and subresources of the group.
type Rule struct {
	Group     string
	Resources []string
}

// Rules are what an engineer may read.
type Rules []Rule

// ManagementCluster returns the rules for a management cluster: those for a hosted cluster, and the resources of HyperShift and of Cluster API, which refer to
// Secrets by name.
func ManagementCluster() Rules {
	return slices.Concat(HostedCluster(), groups("hypershift.openshift.io", "certificates.hypershift.openshift.io", "scheduling.hypershift.openshift.io", "cluster.x-k8s.io",
		"infrastructure.cluster.x-k8s.io"))
}

// ServiceCluster returns the rules for the service cluster: those for a hosted cluster without OpenShift's resources, and the resources of Istio, of Prometheus'
// operator and of the driver for secrets, which name secrets of a vault.
func ServiceCluster() Rules {
	kubernetes := slices.DeleteFunc(HostedCluster(), func(r Rule) bool { return strings.HasSuffix(r.Group, ".openshift.io") })
	return append(kubernetes, groups("gateway.networking.k8s.io", "networking.istio.io", "security.istio.io", "telemetry.istio.io", "monitoring.coreos.com", "azmonitoring.coreos.com",
		"secrets-store.csi.x-k8s.io")...)
}

// HostedCluster returns the rules for a hosted cluster. RBAC cannot exclude a resource, so all of them are listed: in the group of the core everything but Secrets and the
// subresources with which one can act in a pod or reach its network, and the groups of Kubernetes and OpenShift without secrets.
func HostedCluster() Rules {
	rules := Rules{{"", []string{"bindings", "componentstatuses", "configmaps", "endpoints", "events", "limitranges", "namespaces", "namespaces/status", "nodes", "nodes/status",
		"persistentvolumeclaims", "persistentvolumeclaims/status", "persistentvolumes", "persistentvolumes/status", "pods", "pods/log", "pods/status",
		"podtemplates", "replicationcontrollers", "replicationcontrollers/scale", "replicationcontrollers/status", "resourcequotas", "resourcequotas/status",
		"serviceaccounts", "services", "services/status"}}}
	rules = append(rules, groups("admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "apps", "autoscaling", "batch", "certificates.k8s.io",
		"config.openshift.io", "coordination.k8s.io", "discovery.k8s.io", "events.k8s.io", "flowcontrol.apiserver.k8s.io")...)
	rules = append(rules, Rule{"machineconfiguration.openshift.io", []string{"machineconfigpools"}})
	return append(rules, groups("metrics.k8s.io", "networking.k8s.io", "node.k8s.io", "operator.openshift.io", "policy", "rbac.authorization.k8s.io", "scheduling.k8s.io", "storage.k8s.io")...)
}

// groups returns the rules for all resources of API groups.
func groups(names ...string) Rules {
	var rules Rules
	for _, name := range names {
		rules = append(rules, Rule{name, []string{"*"}})
	}
	return rules
}

// Verbs returns the verbs that the rules permit.
func Verbs() []string { return []string{"get", "list", "watch"} }

// Permits reports whether a rule permits a verb on a resource of a group. subresource is empty for the resource itself.
func (rules Rules) Permits(verb, group, resource, subresource string) bool {
	if !slices.Contains(Verbs(), verb) || resource == "" {
		return false
	}
	if subresource != "" {
		resource += "/" + subresource
	}
	return slices.ContainsFunc(rules, func(r Rule) bool {
		return r.Group == group && (slices.Contains(r.Resources, "*") || slices.Contains(r.Resources, resource))
	})
}
