package portal

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/deletion"
	"github.com/hcpmesh/hcpmesh/internal/verdict"
)

// clusterActions lists the actions on a cluster, its placement, and the operations of its customer.
func clusterActions() []action {
	return []action{
		{Kind: kindCluster, Path: "retry", Name: adminv1.ActionClusterRetry, Title: "Retry",
			Effect: "All pending steps of the cluster are retried at once: placement, publishing of works, and steps in Azure. Steps that run or are complete are not affected."},
		{Kind: kindCluster, Path: "pause", Name: adminv1.ActionClusterPause, Title: "Pause",
			Effect: "HyperShift stops the reconciliation of the control plane and the node pools until the pause ends. Running workloads are not affected.",
			Fields: []field{{Name: "duration", Label: "Duration", Help: "For example 30m or 2h, at most 168h.", Value: "30m"}},
			body: func(_ object, form url.Values) (any, error) {
				return adminv1.PauseRequest{Duration: text(form, "duration")}, nil
			}},
		{Kind: kindCluster, Path: "resume", Name: adminv1.ActionClusterResume, Title: "Resume",
			Effect: "HyperShift continues the reconciliation of a paused cluster and its node pools."},
		{Kind: kindCluster, Path: "set-size", Name: adminv1.ActionClusterSetSize, Title: "Control plane size",
			Effect: "The control plane gets this size class, whatever the customer or the number of nodes requests, until an engineer removes the override. HyperShift changes the resources of its components, which restart one after the other.",
			Fields: []field{{Name: "size", Label: "Size class", Help: "The name of a size class of the management cluster. Empty removes the override.", Optional: true}},
			body: func(_ object, form url.Values) (any, error) {
				return adminv1.SetSizeRequest{Size: text(form, "size")}, nil
			}},
		{Kind: kindCluster, Path: "force-step", Name: adminv1.ActionClusterForce, Title: "Force step of the creation",
			Effect: "The creation of the cluster does not wait for this stuck Azure step any more. The step is still retried. Force it only if the cluster works without its resource.",
			Fields: []field{{Name: "step", Label: "Step", Help: "The name of the step, for example azure/operator-roles.", Kind: fixedField}},
			body: func(_ object, form url.Values) (any, error) {
				step, err := required(form, "step")
				return &clusterservicev1.ForceClusterStepRequest{Step: step}, err
			}},
		{Kind: kindCluster, Path: "accept-control-plane", Name: adminv1.ActionClusterAccept, Title: "Accept rebuilt control plane",
			Effect: "The new, empty control plane of a cluster whose control plane was removed is accepted. The data of the removed one is lost, and the cluster is shown as healthy when the new one is. This cannot be undone.",
			Fields: []field{{Name: "controlPlaneUid", Label: "UID of the new control plane", Help: "From the explanation of the cluster. Empty accepts the current one.", Optional: true}},
			body: func(_ object, form url.Values) (any, error) {
				return &clusterservicev1.AcceptControlPlaneRequest{ControlPlaneUid: text(form, "controlPlaneUid")}, nil
			}},
		{Kind: kindCluster, Path: "set-placement", Name: adminv1.ActionPlacementSet, Title: "Set placement rules", preview: previewPlacement,
			Effect: "These rules replace all rules of the cluster and override those of the region. A waiting cluster is placed by them at once. A placed cluster stays, and drain plans follow the rules.",
			Fields: []field{
				{Name: "strategy", Label: "Strategy", Help: "spread chooses the shard with the most room, pack the one with the least. Empty is that of the region.", Kind: selectField, Choices: []string{"", "spread", "pack"}, Optional: true},
				{Name: "provisionShard", Label: "Only this shard", Help: "The only shard that may hold the cluster.", Optional: true},
				{Name: "avoid", Label: "Not these shards", Help: "Shards that may not hold the cluster, separated by commas.", Optional: true},
				{Name: "zones", Label: "Zones", Help: "Availability zones that the shard must have, separated by commas.", Optional: true},
				{Name: "minimumZones", Label: "Minimum number of zones", Help: "Empty is that of the region.", Kind: numberField, Optional: true},
				{Name: "labels", Label: "Labels", Help: "Labels that the shard must have, for example stage=prod.", Optional: true},
				{Name: "sizeClass", Label: "Size class", Help: "Instead of the one that follows from the number of nodes.", Optional: true},
			},
			body: placementBody},
		{Kind: kindCluster, Path: "remove-placement", Name: adminv1.ActionPlacementSet, Title: "Remove placement rules", preview: previewPlacement,
			Effect: "The cluster loses its own placement rules; those of the region apply. A waiting cluster is placed by them at once. A placed cluster stays.",
			body: func(object, url.Values) (any, error) {
				return &clusterservicev1.SetPlacementPolicyRequest{}, nil
			}},
		{Kind: kindARMOperation, Path: "retry", Name: adminv1.ActionARMOperationRetry, Title: "Retry operation of the customer",
			Effect: "The backend executes the next step of the operation at once, without the pause after its last error."},
		{Kind: kindARMOperation, Path: "cancel", Name: adminv1.ActionARMOperationCancel, Title: "Cancel operation of the customer",
			Effect: "The operation, which creates or updates a resource, ends as canceled, and the customer sees that. Changes that Cluster Service has accepted stay. This cannot be undone."},
	}
}

// armOffers returns the actions on an operation of the customer; none after its end. A deletion cannot be canceled.
func armOffers(operation adminv1.ARMOperation) []offer {
	switch {
	case operation.Status.Terminal():
		return nil
	case operation.Request == string(database.DeleteRequest):
		return offersOf(kindARMOperation, operation.OperationID, "retry")
	}
	return offersOf(kindARMOperation, operation.OperationID, "retry", "cancel")
}

// placementStrategies are the strategies of placement rules by their names in forms.
var placementStrategies = map[string]clusterservicev1.PlacementStrategy{
	"": clusterservicev1.PlacementStrategy_PLACEMENT_STRATEGY_UNSPECIFIED, "spread": clusterservicev1.PlacementStrategy_PLACEMENT_STRATEGY_SPREAD, "pack": clusterservicev1.PlacementStrategy_PLACEMENT_STRATEGY_PACK,
}

// placementBody returns the body of the request that sets the placement rules of a cluster. At least one rule is required.
func placementBody(_ object, form url.Values) (any, error) {
	strategy, known := placementStrategies[form.Get("strategy")]
	if !known {
		return nil, &fieldError{"strategy", "Must be spread or pack."}
	}
	if !slices.ContainsFunc([]string{"strategy", "provisionShard", "avoid", "zones", "minimumZones", "labels", "sizeClass"}, func(name string) bool { return text(form, name) != "" }) {
		return nil, &fieldError{"strategy", "Enter at least one rule. Another action removes the rules."}
	}
	zones, err := number(form, "minimumZones", 0, 100)
	if err != nil {
		return nil, err
	}
	policy := &clusterservicev1.PlacementPolicy{Strategy: strategy, Zones: names(form, "zones"), SizeClass: text(form, "sizeClass"), ProvisionShard: text(form, "provisionShard"), Avoid: names(form, "avoid")}
	if zones != nil {
		policy.MinimumZones = *zones
	}
	if policy.Labels, err = labels(form, "labels"); err != nil {
		return nil, err
	}
	return &clusterservicev1.SetPlacementPolicyRequest{Policy: policy}, nil
}

// maxReplicas is the limit of admin for the size of a node pool.
const maxReplicas = 200

// nodePoolActions lists the actions on a node pool of a cluster.
func nodePoolActions() []action {
	return []action{
		{Kind: kindCluster, Path: "scale", Name: adminv1.ActionNodePoolScale, Title: "Scale node pool",
			Effect: "The node pool gets another size in the customer's place. ARM shows it as an update of the customer's resource. A smaller size drains and deletes nodes.",
			Fields: []field{
				{Name: "pool", Label: "Node pool", Help: "The name of the node pool.", Kind: fixedField},
				{Name: "replicas", Label: "Nodes", Help: "0 to 200. Leave it empty for autoscaling.", Kind: numberField, Optional: true},
				{Name: "min", Label: "Minimum with autoscaling", Help: "0 to 200.", Kind: numberField, Optional: true},
				{Name: "max", Label: "Maximum with autoscaling", Help: "0 to 200.", Kind: numberField, Optional: true},
			},
			body: scaleBody},
	}
}

// scaleBody returns the body of the request of another size of a node pool: a number of nodes, or the limits of autoscaling.
func scaleBody(_ object, form url.Values) (any, error) {
	replicas, err := number(form, "replicas", 0, maxReplicas)
	if err != nil {
		return nil, err
	}
	size := adminv1.ScaleRequest{Replicas: replicas}
	least, err := number(form, "min", 0, maxReplicas)
	if err != nil {
		return nil, err
	}
	most, err := number(form, "max", 0, maxReplicas)
	if err != nil {
		return nil, err
	}
	switch automatic := least != nil && most != nil; {
	case (least == nil) != (most == nil):
		return nil, &fieldError{"max", "Autoscaling needs a minimum and a maximum."}
	case automatic == (size.Replicas != nil):
		return nil, &fieldError{"replicas", "Enter either a number of nodes or the limits of autoscaling."}
	case automatic:
		size.AutoScaling = &hub.NodePoolAutoScaling{Min: *least, Max: *most}
	}
	return size, nil
}

// maxFinalizers is the number of finalizers that one request can release.
const maxFinalizers = 8

// deletionActions lists the actions on the deletion of a cluster.
func deletionActions() []action {
	step := field{Name: "step", Label: "Step", Help: "The name of the step, for example hosted-cluster.", Kind: fixedField}
	return []action{
		{Kind: kindCluster, Path: "retry-deletion", Name: adminv1.ActionDeletionRetry, Title: "Retry deletion",
			Effect: "All running deletion steps of the cluster and its children are retried at once, in Cluster Service and in ARM."},
		{Kind: kindCluster, Path: "release-finalizers", Name: adminv1.ActionDeletionRelease, Title: "Release finalizers",
			Effect: "The agent removes these finalizers from the objects of the step on the management cluster. What their controllers would have cleaned up remains.",
			Fields: []field{step, {Name: "finalizers", Label: "Finalizers", Help: "The full names, 1 to 8, separated by commas, for example backup.example.com/hook."}},
			body: func(_ object, form url.Values) (any, error) {
				name, err := required(form, "step")
				if err != nil {
					return nil, err
				}
				list := names(form, "finalizers")
				if len(list) == 0 || len(list) > maxFinalizers {
					return nil, &fieldError{"finalizers", fmt.Sprintf("Enter 1 to %d finalizers.", maxFinalizers)}
				}
				return &clusterservicev1.ReleaseDeletionFinalizersRequest{Step: name, Finalizers: list}, nil
			}},
		{Kind: kindCluster, Path: "force-deletion-step", Name: adminv1.ActionDeletionForce, Title: "Force deletion step",
			Effect: "The deletion does not wait for this step of Cluster Service any more. What the step has not deleted may remain; works that remain are listed as leftovers until they are gone. Steps in ARM cannot be forced.",
			Fields: []field{step},
			body: func(_ object, form url.Values) (any, error) {
				name, err := required(form, "step")
				return &clusterservicev1.ForceDeletionStepRequest{Step: name}, err
			}},
	}
}

// deletionOffers returns the actions on a step of a deletion. Steps of ARM and of the acceptance by Cluster Service can only be retried.
func deletionOffers(cluster string, step *clusterservicev1.DeletionStep) []offer {
	if step.GetState() != clusterservicev1.DeletionStepState_DELETION_STEP_STATE_RUNNING || deletion.ForceRefusal(step.GetKind()) != "" {
		return nil
	}
	var list []offer
	if finalizers := step.GetFinalizers(); len(finalizers) > 0 {
		list = append(list, offerOf(kindCluster, "release-finalizers", cluster, url.Values{"step": {step.GetName()}, "finalizers": {strings.Join(finalizers, ", ")}}))
	}
	return append(list, offerOf(kindCluster, "force-deletion-step", cluster, url.Values{"step": {step.GetName()}}))
}

// credentialClasses are the classes of credentials, in the form of the API.
var credentialClasses = []string{"sre", "customer"}

// credentialActions lists the actions on the credentials of a cluster.
func credentialActions() []action {
	return []action{
		{Kind: kindCluster, Path: "revoke-credentials", Name: adminv1.ActionCredentialRevoke, Title: "Revoke credentials of a class",
			Effect: "The control plane replaces the signer of the class; from then on the API server accepts none of its certificates. With the class customer, all break-glass kubeconfigs of the customer end.",
			Fields: []field{{Name: "class", Label: "Class", Help: "sre: credentials of engineers. customer: those of the customer's administrators.", Kind: selectField, Choices: credentialClasses, Value: credentialClasses[0]}},
			body: func(_ object, form url.Values) (any, error) {
				return adminv1.RevokeRequest{Class: form.Get("class")}, nil
			}},
		{Kind: kindCluster, Path: "revoke-credential", Name: adminv1.ActionCredentialRevokeOne, Title: "Revoke credential",
			Effect: "This credential of class sre is revoked, and the others that were requested for the cluster with the same elevation. None is issued with this elevation any more. The API server accepts a certificate until it expires, at most 15 minutes after it was signed.",
			Fields: []field{{Name: "credential", Label: "Credential", Help: "The UID of the credential.", Kind: fixedField}}},
	}
}

// clusterOffers returns the actions that suit the verdict of a cluster. admin decides whether an action is possible.
func clusterOffers(cluster adminv1.Cluster) []offer {
	if cluster.DeleteTime != nil || cluster.Verdict == verdict.Deleting {
		return offersOf(kindCluster, cluster.UID, "retry-deletion")
	}
	paths := []string{"retry", "pause", "resume", "set-size", "set-placement", "remove-placement", "set-egress-link", "accept-control-plane"}
	if cluster.Verdict != verdict.Ready {
		paths = append(paths, "force-step")
	}
	return offersOf(kindCluster, cluster.UID, paths...)
}
