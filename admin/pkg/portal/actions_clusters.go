package portal

import (
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

// placementActions lists the actions on the placement of a cluster.
func placementActions() []action {
	return []action{
		{Kind: kindCluster, Path: "set-placement", Name: adminv1.ActionPlacementSet, Title: "Set placement rules", preview: previewPlacement,
			Effect: "These rules replace all rules of the cluster and override those of the region. A waiting cluster is placed by them at once. A placed cluster stays, and drain plans follow the rules.",
			Fields: []field{
				{Name: "strategy", Label: "Strategy", Help: "spread chooses the shard with the most room, pack the one with the least. Empty is that of the region.", Kind: adminv1.FieldSelect, Choices: []string{"", "spread", "pack"}, Optional: true},
				{Name: "provisionShard", Label: "Only this shard", Help: "The only shard that may hold the cluster.", Optional: true},
				{Name: "avoid", Label: "Not these shards", Help: "Shards that may not hold the cluster, separated by commas.", Optional: true},
				{Name: "zones", Label: "Zones", Help: "Availability zones that the shard must have, separated by commas.", Optional: true},
				{Name: "minimumZones", Label: "Minimum number of zones", Help: "Empty is that of the region.", Kind: adminv1.FieldNumber, Optional: true},
				{Name: "labels", Label: "Labels", Help: "Labels that the shard must have, for example stage=prod.", Optional: true},
				{Name: "sizeClass", Label: "Size class", Help: "Instead of the one that follows from the number of nodes.", Optional: true},
			},
			body: placementBody},
		{Kind: kindCluster, Path: "remove-placement", Name: adminv1.ActionPlacementSet, Title: "Remove placement rules", preview: previewPlacement,
			Effect: "The cluster loses its own placement rules; those of the region apply. A waiting cluster is placed by them at once. A placed cluster stays.",
			body: func(object, url.Values) (any, error) {
				return &clusterservicev1.SetPlacementPolicyRequest{}, nil
			}},
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
				{Name: "pool", Label: "Node pool", Help: "The name of the node pool.", Kind: adminv1.FieldFixed},
				{Name: "replicas", Label: "Nodes", Help: "0 to 200. Leave it empty for autoscaling.", Kind: adminv1.FieldNumber, Optional: true},
				{Name: "min", Label: "Minimum with autoscaling", Help: "0 to 200.", Kind: adminv1.FieldNumber, Optional: true},
				{Name: "max", Label: "Maximum with autoscaling", Help: "0 to 200.", Kind: adminv1.FieldNumber, Optional: true},
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

// clusterOffers returns the actions that suit the verdict of a cluster. admin decides whether an action is possible.
func clusterOffers(cluster adminv1.Cluster) []offer {
	if cluster.DeleteTime != nil || cluster.Verdict == verdict.Deleting {
		return offersOf(kindCluster, cluster.UID, "retry-deletion")
	}
	var paths []string
	for _, a := range adminv1.Actions() {
		if a.Form.OnCluster {
			paths = append(paths, a.Form.Path)
		}
	}
	paths = append(paths, "set-placement", "remove-placement", "set-egress-link", "accept-control-plane")
	if cluster.Verdict != verdict.Ready {
		paths = append(paths, "force-step")
	}
	return offersOf(kindCluster, cluster.UID, paths...)
}
