package validation

import (
	"slices"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/config"
)

const operatorsField = "properties.platform.operatorsAuthentication.userAssignedIdentities."

// operatorIdentities validates the identities of operators. Every identity that is assigned to the cluster must be used
// exactly once, by a control plane operator or by the service. Identities of data plane operators are federated with the
// customer's cluster and must not be assigned. No two operators may share an identity. The region's role set of the
// cluster's version lists the operators that need one. uses is the result of identity.
func (r *Rules) operatorIdentities(found *report, cluster *hub.Cluster, uses map[string]*identityUse) {
	managedGroup := cluster.Properties.Platform.ManagedResourceGroup
	ids := &cluster.Properties.Platform.OperatorsAuthentication.UserAssignedIdentities
	needed := r.roleSet(cluster.Properties.Version.ID)

	// seen holds the keys of the identities of all operators. The published service compares them in this order: control plane, data
	// plane, service.
	seen := map[string]bool{}
	once := func(field, id string) (key string, valid bool) {
		if _, valid = resourceRef(found, field, id, identityType, cluster.ID, managedGroup); !valid {
			return "", false
		}
		key = hub.Key(id)
		if seen[key] {
			found.invalid(field, id, "identity is used more than once")
		}
		seen[key] = true
		return key, true
	}
	used := func(field, id string) {
		key, valid := once(field, id)
		if !valid {
			return
		}
		if identity, assigned := uses[key]; assigned {
			identity.count++
		} else {
			found.invalid(field, id, "identity is not assigned to this resource")
		}
	}
	for _, operator := range operators(found, operatorsField+"controlPlaneOperators", ids.ControlPlaneOperators, needed.ControlPlaneOperators, cluster) {
		used(operatorsField+"controlPlaneOperators["+operator+"]", ids.ControlPlaneOperators[operator])
	}
	for _, operator := range operators(found, operatorsField+"dataPlaneOperators", ids.DataPlaneOperators, needed.DataPlaneOperators, cluster) {
		field, id := operatorsField+"dataPlaneOperators["+operator+"]", ids.DataPlaneOperators[operator]
		if key, valid := once(field, id); valid && uses[key] != nil {
			found.invalid(field, id, "must not be an identity that is assigned to this resource")
		}
	}
	used(operatorsField+"serviceManagedIdentity", ids.ServiceManagedIdentity)

	for _, key := range sortedKeys(uses) {
		identity := uses[key]
		field := "identity.userAssignedIdentities[" + identity.assigned + "]"
		switch {
		case identity.count > 1:
			found.invalid(field, identity.assigned, "identity is used more than once")
		case identity.count == 0:
			// Malformed IDs are reported elsewhere.
			if _, ok := resourceRef(&report{}, "", identity.assigned, identityType, cluster.ID, ""); ok {
				found.invalid(field, identity.assigned,
					"identity is assigned to this resource but not used by a control plane operator or the service")
			}
		}
	}
}

// operators validates the names of operators and returns them in order. It requires an identity for each operator that
// the cluster needs.
func operators(report *report, field string, ids map[string]string, needed []config.Operator, cluster *hub.Cluster) []string {
	needed = slices.DeleteFunc(slices.Clone(needed), func(operator config.Operator) bool { return !needs(cluster, operator) })
	if ids == nil || len(ids) == 0 && len(needed) > 0 {
		report.required(field)
		return nil
	}
	if report.tooMany(field, len(ids), hub.MaxOperators) {
		return nil
	}
	for _, operator := range needed {
		if _, given := ids[operator.Name]; !given {
			report.required(field + "[" + operator.Name + "]")
		}
	}
	names := sortedKeys(ids)
	for _, operator := range names {
		if len(operator) > 63 || !isDNSLabel(operator) {
			report.invalid(field+"["+operator+"]", operator,
				"an operator's name must consist of at most 63 lower-case letters, digits and '-', start with a letter and end with a letter or digit")
		}
	}
	return names
}

// kmsOperator is the operator that reads the customer's key of etcd.
const kmsOperator = "kms"

// needs reports whether a cluster needs an operator of its role set.
func needs(cluster *hub.Cluster, operator config.Operator) bool {
	if operator.Name == kmsOperator {
		return cluster.Properties.Etcd.DataEncryption.KeyManagementMode == customerManaged
	}
	return operator.Required == config.Always
}

// roleSet returns the role set of an OpenShift version; empty if the region has none.
func (r *Rules) roleSet(version string) config.RoleSet {
	for _, set := range r.offer.RoleSets {
		if slices.Contains(set.Versions, version) {
			return set
		}
	}
	return config.RoleSet{}
}
