package fleet

import (
	"fmt"
	"slices"
	"strings"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/feedback"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/render/armproperty"
	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
)

// ExternalAuth is the row of an external authentication. It has no work of its own, because it is part of its cluster's
// HostedCluster.
type ExternalAuth struct {
	UID        string
	ClusterUID string
	ResourceID string
	Generation int64
	// Spec is like that of a cluster.
	Spec   *csv1.ExternalAuthSpec
	Status *csv1.ExternalAuthStatus
	Update
	Revision   int64
	CreateTime time.Time
	DeleteTime time.Time
	GoneTime   time.Time
}

// Deleting reports whether the deletion was requested.
func (a *ExternalAuth) Deleting() bool { return !a.DeleteTime.IsZero() }

// Gone reports whether only the tombstone is left.
func (a *ExternalAuth) Gone() bool { return !a.GoneTime.IsZero() }

// Proto returns the external authentication as a message of the API.
func (a *ExternalAuth) Proto() *csv1.ExternalAuth {
	return &csv1.ExternalAuth{Uid: a.UID, ClusterUid: a.ClusterUID, ResourceId: a.ResourceID, Generation: a.Generation, Spec: a.RequestedSpec(),
		Status: a.Status, Revision: a.Revision, CreateTime: timestamp(a.CreateTime), DeleteTime: timestamp(a.DeleteTime)}
}

// ProviderName returns the name of the OIDC provider in the cluster.
func (a *ExternalAuth) ProviderName() string { return strings.ToLower(a.Spec.GetName()) }

// The secret of a confidential client in the cluster.
const (
	// ClientSecretNamespace is the namespace in which the customer creates the secret.
	ClientSecretNamespace = "openshift-config"
	// ClientSecretKey is the key in the secret.
	ClientSecretKey = "clientSecret"
)

// ClientSecretName returns the name of a confidential client's secret.
func ClientSecretName(spec *csv1.ExternalAuthSpec, client *csv1.OidcClient) string {
	return strings.ToLower(spec.GetName() + "-" + client.GetComponentName() + "-" + client.GetComponentNamespace())
}

// ExternalAuth returns the external authentication that is not being deleted, or nil.
func (t *ClusterAggregate) ExternalAuth() *ExternalAuth {
	i := slices.IndexFunc(t.ExternalAuths, func(a *ExternalAuth) bool { return !a.Deleting() })
	if i < 0 {
		return nil
	}
	return t.ExternalAuths[i]
}

// RenderedExternalAuth returns the external authentication that the HostedCluster has to contain, or nil.
func (t *ClusterAggregate) RenderedExternalAuth() *ExternalAuth {
	if a := t.ExternalAuth(); a != nil && !a.withdrawn() {
		return a
	}
	return nil
}

// ExternalAuthByUID returns the external authentication with a UID, or nil.
func (t *ClusterAggregate) ExternalAuthByUID(uid string) *ExternalAuth {
	i := slices.IndexFunc(t.ExternalAuths, func(a *ExternalAuth) bool { return a.UID == uid })
	if i < 0 {
		return nil
	}
	return t.ExternalAuths[i]
}

func decideExternalAuth(now time.Time, t *ClusterAggregate, a *ExternalAuth) {
	if a.Status == nil {
		a.Status = &csv1.ExternalAuthStatus{}
	}
	s, work := a.Status, t.Work(HostedCluster, "")
	s.AwaitedSecrets = nil
	switch {
	case a.Gone():
		return
	case a.Deleting():
		decideExternalAuthDeletion(now, t, a, work)
		return
	case work == nil:
		s.Phase = csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_PENDING
		s.Progress = setProgress(s.Progress, now, layer{LayerPlacement, clusterstatus.StateWaitingForCluster, "Waiting for the cluster to be placed."})
		return
	}
	seen := &work.Observed
	// The digest covers the whole HostedCluster. When it is read back, the rendered generation is on the management cluster.
	carried, generation := work.Applied(), a.renderedGeneration(a.Generation)
	invalid := invalidConfiguration(seen)
	// The control plane of a paused cluster keeps its configuration.
	took := carried && !a.withdrawn() && !seen.Paused() && invalid.Status != "" && seen.ConfigurationGeneration >= seen.Generation
	if took && invalid.Status == "True" {
		s.ObservedGeneration = generation
	}
	switch {
	case a.Refused != nil:
		s.Phase = csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_FAILED
	case took && invalid.Status == "False", work.Refused:
		s.Phase = csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_FAILED
	case s.ObservedGeneration == a.Generation && carried:
		s.Phase = csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_READY
		if s.AwaitedSecrets = awaitedSecrets(a.Spec, seen); len(s.AwaitedSecrets) > 0 {
			s.Phase = csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_AWAITING_SECRET
		}
	case s.ObservedGeneration == a.Generation:
		// Another change of the cluster is being rolled out or refused; the phase stays.
	case work.Refusal() != nil:
		s.Phase = csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_FAILED
	case s.ObservedGeneration > 0:
		s.Phase = csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_UPDATING
	default:
		s.Phase = csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_INSTALLING
	}
	problem := issuerProblemOf(a, seen)
	s.Conditions = setConditions(s.Conditions, now, generation, externalAuthAvailable(s, problem), externalAuthProgressing(s), externalAuthDegraded(a, work, invalid, problem),
		a.appliedCondition(work, armproperty.ExternalAuth), validCondition(took, invalid), secretsCondition(s))
	layers := append([]layer{{LayerPlacement, clusterstatus.StatePlaced, "Placed with its cluster on provision shard " + work.Shard + "."}},
		a.progress(s.Conditions, maestroLayer(t.Work(Namespaces, ""), work), managementClusterLayer(work))...)
	s.Progress = setProgress(s.Progress, now, append(layers, externalAuthLayer(s, invalid, problem))...)
}

// invalidConfiguration returns HyperShift's condition on the configuration of a HostedCluster: the operator's if it is
// False, or else the control plane's.
func invalidConfiguration(seen *feedback.Observed) feedback.Condition {
	if c := seen.Condition(feedback.ValidConfiguration); c.Status == "False" {
		return c
	}
	return seen.Condition(feedback.ValidControlPlaneConfiguration)
}

// externalAuthAvailable returns the condition Available: whether the API server accepts tokens of the issuer. Customers see
// Available, Progressing and Degraded. A control plane uses its last valid configuration while a newer one is pending. While it cannot
// read the issuer's keys, it accepts tokens only with keys that it has read before.
func externalAuthAvailable(s *csv1.ExternalAuthStatus, problem *issuerFailure) condition {
	switch {
	case s.GetObservedGeneration() == 0:
		return condition{"Available", "False", "NotConfigured", "The control plane does not accept tokens of the issuer yet."}
	case problem != nil:
		return condition{"Available", "Unknown", problem.reason, problem.message}
	}
	return condition{"Available", "True", "AsExpected", "The control plane accepts tokens of the issuer."}
}

func externalAuthProgressing(s *csv1.ExternalAuthStatus) condition {
	switch s.GetPhase() {
	case csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_INSTALLING, csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_UPDATING:
		return condition{"Progressing", "True", "Configuring", "Waiting for the control plane to apply the configuration."}
	case csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_AWAITING_SECRET:
		return condition{"Progressing", "True", "AwaitingSecret", awaitedMessage(s)}
	}
	return condition{"Progressing", "False", "AsExpected", "No change is in progress."}
}

func externalAuthDegraded(a *ExternalAuth, work *Work, invalid feedback.Condition, problem *issuerFailure) condition {
	s := a.Status
	switch {
	case s.GetPhase() != csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_FAILED && problem != nil:
		return condition{"Degraded", "True", problem.reason, problem.message}
	case s.GetPhase() != csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_FAILED:
		return condition{"Degraded", "False", "AsExpected", "No problem is reported."}
	case work.Refused:
		return condition{"Degraded", "True", "Refused", work.Error}
	case a.Refused != nil, work.Refusal() != nil:
		return condition{"Degraded", "True", clusterstatus.ApplyRefused, "The service cannot apply the configuration. The control plane keeps the previous one."}
	}
	return condition{"Degraded", "True", invalid.Reason, invalid.Message}
}

func validCondition(took bool, valid feedback.Condition) condition {
	switch {
	case !took:
		return condition{"Valid", "Unknown", "Pending", "The control plane has not validated the configuration yet."}
	case valid.Status == "False":
		return condition{"Valid", "False", valid.Reason, valid.Message}
	}
	return condition{"Valid", "True", valid.Reason, valid.Message}
}

func secretsCondition(s *csv1.ExternalAuthStatus) condition {
	switch s.Phase {
	case csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_AWAITING_SECRET:
		return condition{"SecretsPresent", "False", "AwaitingSecret", awaitedMessage(s)}
	case csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_READY:
		return condition{"SecretsPresent", "True", "AsExpected", "Every confidential client has its secret."}
	}
	return condition{name: "SecretsPresent"}
}

func awaitedMessage(s *csv1.ExternalAuthStatus) string {
	var names []string
	for _, secret := range s.GetAwaitedSecrets() {
		names = append(names, secret.GetNamespace()+"/"+secret.GetName())
	}
	return fmt.Sprintf("Waiting for the customer to create, in the cluster, with key %s: Secret %s.", ClientSecretKey, strings.Join(names, ", "))
}

func externalAuthLayer(s *csv1.ExternalAuthStatus, valid feedback.Condition, problem *issuerFailure) layer {
	switch s.GetPhase() {
	case csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_READY:
		if problem != nil {
			return layer{LayerControlPlane, problem.reason, problem.message}
		}
		return layer{LayerControlPlane, clusterstatus.StateConfigured, "The control plane accepts tokens of the issuer."}
	case csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_AWAITING_SECRET:
		return layer{LayerControlPlane, clusterstatus.StateAwaitingSecret, awaitedMessage(s)}
	case csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_FAILED:
		if valid.Status == "False" {
			return layer{LayerControlPlane, "Invalid", valid.Message}
		}
	}
	return layer{LayerControlPlane, clusterstatus.StateWaiting, "Waiting for the control plane to apply the configuration."}
}

// awaitedSecrets returns the secrets of confidential clients that are missing in the cluster. A client that was not
// reported yet counts as missing.
func awaitedSecrets(spec *csv1.ExternalAuthSpec, seen *feedback.Observed) []*csv1.AwaitedSecret {
	var list []*csv1.AwaitedSecret
	for _, c := range spec.GetClients() {
		if c.GetType() != csv1.OidcClientType_OIDC_CLIENT_TYPE_CONFIDENTIAL || seen.OIDCClientHasSecret(c.GetComponentName(), c.GetComponentNamespace()) {
			continue
		}
		list = append(list, &csv1.AwaitedSecret{ComponentName: c.GetComponentName(), ComponentNamespace: c.GetComponentNamespace(),
			Namespace: ClientSecretNamespace, Name: ClientSecretName(spec, c), Key: ClientSecretKey})
	}
	return list
}

// decideExternalAuthDeletion completes the deletion when the management cluster has the HostedCluster without it, or
// nothing of the cluster.
func decideExternalAuthDeletion(now time.Time, t *ClusterAggregate, a *ExternalAuth, work *Work) {
	s := a.Status
	clusterGoes := t.Cluster == nil || t.Cluster.Deleting()
	if work == nil || !clusterGoes && work.Applied() && !work.Observed.Paused() {
		a.GoneTime = now
		s.Phase = csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_DELETED
		s.Progress = setProgress(s.Progress, now, layer{LayerManagementCluster, clusterstatus.StateDeleted, "All objects on the management cluster are deleted."})
		return
	}
	s.Phase = csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_DELETING
	message := "Waiting for the agent of the management cluster to apply the HostedCluster without the external authentication."
	switch {
	case clusterGoes:
		message = "Waiting for the deletion of its cluster."
	case work.Observed.Paused():
		message = "Waiting for the end of the pause: until then the control plane accepts the issuer."
	}
	s.Progress = setProgress(s.Progress, now, maestroLayer(work), layer{LayerManagementCluster, clusterstatus.StateRemoving, message})
}
