package hostedcluster

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/schedule"
	"github.com/hcpmesh/hcpmesh/internal/release"
	configv1 "github.com/openshift/api/config/v1"
	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// observation is the input of the decisions about a hosted cluster.
type observation struct {
	Now time.Time
	// Desired is the release of spec.release.image; nil if the catalogue does not contain it.
	Desired *release.Release
	// Installing is the release that the control plane is to run. It differs from Desired while an upgrade is refused;
	// UpgradeRefusal is the reason.
	Installing     *release.Release
	UpgradeRefusal string
	// Updates are the releases to which an upgrade is possible.
	Updates []release.Update
	// Pause is the meaning of spec.pausedUntil at Now.
	Pause contract.Pause
	// Problem is an error that stops the pass, such as a missing secret or an invalid field.
	Problem error
	// Phase is the phase of the control plane. It is Accepted while no HostedControlPlane exists.
	Phase schedule.Phase
	// Rollout is the progress of its components.
	Rollout rollout
	// Endpoint is the address of the API server; the zero value while it is not known.
	Endpoint hyperv1.APIEndpoint
	// Kubeconfig, CustomKubeconfig and KubeadminPassword state which secrets exist in the HostedCluster's namespace.
	Kubeconfig, CustomKubeconfig, KubeadminPassword bool
	// ReadyNodes is the number of Ready nodes of all node pools.
	ReadyNodes int
	// SigningKey is the key for service-account tokens to which the spec refers; nil if it refers to none.
	SigningKey *signingKey
	// Authentication is the authentication configuration file of the API server; nil while it is not known.
	Authentication []byte
	// Invalid is the error of an invalid configuration of the HostedCluster. Its control plane then follows no part of the spec.
	Invalid error
	// ConfigurationProblem is the error of an invalid configuration of the control plane. The previous configuration stays in effect.
	ConfigurationProblem error
	// OIDCClients reports the components that sign users in with an external issuer.
	OIDCClients []configv1.OIDCClientStatus
	// Encryption is the state of the encryption of etcd's data; nil while it is not known.
	Encryption *encryption
	Faults     contract.Faults
}

// conditions sets conditions. A transition time changes only with the status.
type conditions struct {
	list       *[]metav1.Condition
	now        metav1.Time
	generation int64
}

func (c conditions) set(kind hyperv1.ConditionType, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(c.list, metav1.Condition{
		Type: string(kind), Status: status, Reason: reason, Message: message,
		LastTransitionTime: c.now, ObservedGeneration: c.generation,
	})
}

func (c conditions) setTrue(kind hyperv1.ConditionType, reason, message string) {
	c.set(kind, metav1.ConditionTrue, reason, message)
}

func (c conditions) setFalse(kind hyperv1.ConditionType, reason, message string) {
	c.set(kind, metav1.ConditionFalse, reason, message)
}

func (c conditions) setUnknown(kind hyperv1.ConditionType, reason, message string) {
	c.set(kind, metav1.ConditionUnknown, reason, message)
}

// controlPlaneConditions are the conditions that a HostedCluster copies from its HostedControlPlane.
var controlPlaneConditions = []hyperv1.ConditionType{
	hyperv1.InfrastructureReady, hyperv1.KubeAPIServerAvailable, hyperv1.EtcdAvailable, hyperv1.ValidHostedControlPlaneConfiguration,
	hyperv1.ExternalDNSReachable, hyperv1.ValidReleaseInfo, hyperv1.ValidAzureKMSConfig, hyperv1.HostedClusterDegraded,
	hyperv1.ClusterVersionSucceeding, hyperv1.ClusterVersionProgressing, hyperv1.ClusterVersionAvailable,
	hyperv1.ClusterVersionReleaseAccepted, hyperv1.ClusterVersionRetrievedUpdates, hyperv1.ClusterVersionUpgradeable,
	hyperv1.DataPlaneConnectionAvailable, hyperv1.ControlPlaneConnectionAvailable,
	"ConfigOperatorReconciliationSucceeded",
}

// decideControlPlane returns the status of the HostedControlPlane.
func decideControlPlane(hc *hyperv1.HostedCluster, hcp *hyperv1.HostedControlPlane, o *observation) hyperv1.HostedControlPlaneStatus {
	status := *hcp.Status.DeepCopy()
	c := conditions{list: &status.Conditions, now: metav1.NewTime(o.Now), generation: hcp.Generation}

	if o.ConfigurationProblem != nil {
		c.setFalse(hyperv1.ValidHostedControlPlaneConfiguration, hyperv1.InvalidConfigurationReason, o.ConfigurationProblem.Error())
	} else {
		c.setTrue(hyperv1.ValidHostedControlPlaneConfiguration, hyperv1.AsExpectedReason, "Configuration passes validation")
	}
	status.Configuration = configurationStatus(o)
	c.setTrue(hyperv1.ValidReleaseInfo, hyperv1.AsExpectedReason, hyperv1.AllIsWellMessage)
	infrastructure := o.Phase > schedule.Infrastructure
	if infrastructure {
		c.setTrue(hyperv1.InfrastructureReady, hyperv1.AsExpectedReason, hyperv1.AllIsWellMessage)
	} else {
		c.setFalse(hyperv1.InfrastructureReady, hyperv1.WaitingOnInfrastructureReadyReason, "Cluster infrastructure is still provisioning")
	}
	switch {
	case externalHost(hc) == "":
		c.setUnknown(hyperv1.ExternalDNSReachable, hyperv1.StatusUnknownReason, "External DNS is not configured")
	case infrastructure:
		c.setTrue(hyperv1.ExternalDNSReachable, hyperv1.AsExpectedReason, hyperv1.AllIsWellMessage)
	default:
		c.setFalse(hyperv1.ExternalDNSReachable, hyperv1.ExternalDNSHostNotReachableReason, "The external host name does not resolve yet")
	}
	decideKMS(c, hc, o)
	o.Encryption.setCondition(c)
	etcdReady := decideEtcd(c, o)
	apiReady := decideAPIServer(c, o)

	wasAvailable := meta.IsStatusConditionTrue(hcp.Status.Conditions, string(hyperv1.HostedControlPlaneAvailable))
	waiting := o.Rollout.unavailable()
	etcd, api := findCondition(status.Conditions, hyperv1.EtcdAvailable), findCondition(status.Conditions, hyperv1.KubeAPIServerAvailable)
	switch {
	case !infrastructure:
		c.setFalse(hyperv1.HostedControlPlaneAvailable, hyperv1.WaitingOnInfrastructureReadyReason, "Cluster infrastructure is still provisioning")
	case o.Phase <= schedule.Kubeconfig:
		c.setFalse(hyperv1.HostedControlPlaneAvailable, hyperv1.KubeconfigWaitingForCreateReason, "Waiting for hosted control plane kubeconfig to be created")
	case !etcdReady:
		c.setFalse(hyperv1.HostedControlPlaneAvailable, etcd.Reason, etcd.Message)
	case !apiReady:
		c.setFalse(hyperv1.HostedControlPlaneAvailable, api.Reason, api.Message)
	case o.Phase == schedule.LoadBalancer:
		c.setFalse(hyperv1.HostedControlPlaneAvailable, hyperv1.KASLoadBalancerNotReachableReason, "The API server's load balancer is not reachable yet")
	case !wasAvailable && len(waiting) > 0:
		c.setFalse(hyperv1.HostedControlPlaneAvailable, hyperv1.ControlPlaneComponentsNotAvailable, "Waiting for components to be available: "+strings.Join(waiting, ", "))
	case !wasAvailable && o.Phase < schedule.Done:
		c.setFalse(hyperv1.HostedControlPlaneAvailable, hyperv1.ControlPlaneComponentsNotAvailable, "Waiting for components to be available: cluster-version-operator")
	default:
		c.setTrue(hyperv1.HostedControlPlaneAvailable, hyperv1.AsExpectedReason, "The hosted control plane is available")
	}
	switch {
	case o.Faults.Has(contract.FaultDegraded):
		c.setTrue(hyperv1.HostedClusterDegraded, "UnavailableReplicas", "[kube-controller-manager deployment has 1 unavailable replicas]")
	case infrastructure && apiReady && len(waiting) > 0:
		c.setTrue(hyperv1.HostedClusterDegraded, "UnavailableReplicas", "["+waiting[0]+" deployment has 1 unavailable replicas]")
	default:
		c.setFalse(hyperv1.HostedClusterDegraded, hyperv1.AsExpectedReason, "The hosted cluster is not degraded")
	}

	available := meta.IsStatusConditionTrue(status.Conditions, string(hyperv1.HostedControlPlaneAvailable))
	decideVersions(&status, hc, hcp.Spec.ReleaseImage, o)
	decideClusterVersion(c, &status, o, available)
	decideConnections(c, o, available)

	status.Ready = apiReady
	status.Initialized = status.Initialized || apiReady
	status.ExternalManagedControlPlane = new(true)
	if infrastructure {
		status.ControlPlaneEndpoint = o.Endpoint
		if oidcSpec(hc.Spec.Configuration) == nil {
			status.OAuthCallbackURLTemplate = oauthTemplate(hc)
		}
	}
	if o.Phase > schedule.Kubeconfig {
		status.KubeConfig = &hyperv1.KubeconfigSecretRef{Name: contract.AdminKubeconfigSecret, Key: "kubeconfig"}
	}
	if o.KubeadminPassword {
		status.KubeadminPassword = &corev1.LocalObjectReference{Name: contract.KubeadminPasswordSecret}
	}
	status.NodeCount = new(o.ReadyNodes)
	return status
}

func decideKMS(c conditions, hc *hyperv1.HostedCluster, o *observation) {
	if s := hc.Spec.SecretEncryption; s == nil || s.KMS == nil || s.KMS.Azure == nil {
		c.setUnknown(hyperv1.ValidAzureKMSConfig, hyperv1.StatusUnknownReason, "Azure KMS is not configured")
		return
	}
	switch access := hc.Spec.SecretEncryption.KMS.Azure.KeyVaultAccess; {
	case access == hyperv1.AzureKeyVaultPrivate:
		// The operator validates from the management cluster, and has no other reason for a vault that it does not reach.
		c.setFalse(hyperv1.ValidAzureKMSConfig, hyperv1.AzureErrorReason, "failed to encrypt data using KMS (the key vault is private and cannot be reached from the management cluster)")
	case access != hyperv1.AzureKeyVaultPublic && access != "":
		c.setFalse(hyperv1.ValidAzureKMSConfig, hyperv1.InvalidConfigurationReason, fmt.Sprintf("unknown keyVaultAccess %q: supported values are %q and %q", access, hyperv1.AzureKeyVaultPublic, hyperv1.AzureKeyVaultPrivate))
	case o.Faults.Has(contract.FaultKMSInvalid):
		c.setFalse(hyperv1.ValidAzureKMSConfig, hyperv1.AzureErrorReason, "failed to encrypt data using KMS (key vault refused the key)")
	default:
		c.setTrue(hyperv1.ValidAzureKMSConfig, hyperv1.AsExpectedReason, hyperv1.AllIsWellMessage)
	}
}

// routePort is the port of a route.
const routePort = 443

// brokenPort is the port of contract.FaultEndpointBroken. Nothing listens there.
const brokenPort = 1

func decideEtcd(c conditions, o *observation) bool {
	switch {
	case o.Phase <= schedule.EtcdMissing:
		c.setFalse(hyperv1.EtcdAvailable, hyperv1.EtcdStatefulSetNotFoundReason, "Etcd StatefulSet not found")
	case o.Phase == schedule.EtcdQuorum || o.Faults.Has(contract.FaultEtcdQuorumLoss):
		c.setFalse(hyperv1.EtcdAvailable, hyperv1.EtcdWaitingForQuorumReason, "Waiting for etcd to reach quorum")
	default:
		c.setTrue(hyperv1.EtcdAvailable, hyperv1.EtcdQuorumAvailableReason, "")
		return true
	}
	return false
}

func decideAPIServer(c conditions, o *observation) bool {
	switch {
	case o.Phase <= schedule.APIServerMissing:
		c.setFalse(hyperv1.KubeAPIServerAvailable, hyperv1.NotFoundReason, "Kube APIServer deployment not found")
	case o.Phase == schedule.APIServerStarting || o.Faults.Has(contract.FaultEtcdQuorumLoss):
		c.setFalse(hyperv1.KubeAPIServerAvailable, hyperv1.WaitingForAvailableReason, "Waiting for Kube APIServer deployment to become available")
	default:
		c.setTrue(hyperv1.KubeAPIServerAvailable, hyperv1.AsExpectedReason, "Kube APIServer deployment is available")
		return true
	}
	return false
}

// decideClusterVersion sets the conditions that the cluster-version operator reports from inside the cluster. It cannot
// complete without nodes, because its workloads have no place to run.
func decideClusterVersion(c conditions, status *hyperv1.HostedControlPlaneStatus, o *observation, available bool) {
	if !available {
		return // the operator inside the cluster, which copies them, does not run yet
	}
	current := status.VersionStatus.History[0]
	finished := current.State == "Completed"
	ever := slices.ContainsFunc(status.VersionStatus.History, func(h updateHistory) bool { return h.State == "Completed" })
	c.setTrue(hyperv1.ClusterVersionReleaseAccepted, "PayloadLoaded", fmt.Sprintf("Payload loaded version=%q image=%q architecture=%q", current.Version, current.Image, o.Installing.Architecture))
	c.setTrue(hyperv1.ClusterVersionRetrievedUpdates, hyperv1.FromClusterVersionReason, "")
	if o.Faults.Has(contract.FaultNotUpgradeable) {
		c.setFalse(hyperv1.ClusterVersionUpgradeable, "AdminAckRequired", "This cluster has APIs in use that the next minor version takes away; an administrator must acknowledge that.")
	} else {
		c.setTrue(hyperv1.ClusterVersionUpgradeable, hyperv1.FromClusterVersionReason, "")
	}
	c.setTrue("ConfigOperatorReconciliationSucceeded", hyperv1.AsExpectedReason, "")
	if ever {
		c.setTrue(hyperv1.ClusterVersionAvailable, hyperv1.FromClusterVersionReason, "Done applying "+lastCompleted(status.VersionStatus.History))
	} else {
		c.setFalse(hyperv1.ClusterVersionAvailable, hyperv1.FromClusterVersionReason, "")
	}
	if finished {
		c.setFalse(hyperv1.ClusterVersionFailing, hyperv1.FromClusterVersionReason, "")
		c.setFalse(hyperv1.ClusterVersionProgressing, hyperv1.FromClusterVersionReason, "Cluster version is "+current.Version)
		return
	}
	if o.ReadyNodes == 0 && o.Rollout.complete() {
		c.setTrue(hyperv1.ClusterVersionFailing, "ClusterOperatorsNotAvailable", "Cluster operators console, dns, image-registry, ingress, monitoring, node-tuning are not available")
	} else {
		c.setFalse(hyperv1.ClusterVersionFailing, hyperv1.FromClusterVersionReason, "")
	}
	c.setTrue(hyperv1.ClusterVersionProgressing, hyperv1.FromClusterVersionReason, "Working towards "+current.Version)
}

func decideConnections(c conditions, o *observation, available bool) {
	switch {
	case !available:
		c.setUnknown(hyperv1.DataPlaneConnectionAvailable, hyperv1.StatusUnknownReason, "The hosted control plane is not available")
		c.setUnknown(hyperv1.ControlPlaneConnectionAvailable, hyperv1.StatusUnknownReason, "The hosted control plane is not available")
	case o.ReadyNodes == 0:
		c.setUnknown(hyperv1.DataPlaneConnectionAvailable, hyperv1.DataPlaneConnectionNoWorkerNodesAvailableReason, "No worker nodes available")
		c.setUnknown(hyperv1.ControlPlaneConnectionAvailable, hyperv1.ControlPlaneConnectionNoWorkerNodesAvailableReason, "No worker nodes available")
	default:
		c.setTrue(hyperv1.DataPlaneConnectionAvailable, hyperv1.AsExpectedReason, hyperv1.AllIsWellMessage)
		c.setTrue(hyperv1.ControlPlaneConnectionAvailable, hyperv1.AsExpectedReason, hyperv1.AllIsWellMessage)
	}
}

// decide returns the status of the HostedCluster; hcp is nil while there is no control plane.
func decide(hc *hyperv1.HostedCluster, hcp *hyperv1.HostedControlPlane, o *observation) hyperv1.HostedClusterStatus {
	status := *hc.Status.DeepCopy()
	c := conditions{list: &status.Conditions, now: metav1.NewTime(o.Now), generation: hc.Generation}

	if o.Pause.Active {
		c.setFalse(hyperv1.ReconciliationActive, hyperv1.ReconciliationPausedConditionReason, o.Pause.Message)
	} else {
		c.setTrue(hyperv1.ReconciliationActive, hyperv1.AsExpectedReason, "Reconciliation active on resource")
	}
	decideConfiguration(c, o)
	c.setTrue(hyperv1.SupportedHostedCluster, hyperv1.AsExpectedReason, "HostedCluster is supported by operator configuration")
	if o.Desired == nil {
		c.setFalse(hyperv1.ValidReleaseImage, hyperv1.InvalidImageReason, fmt.Sprintf("failed to lookup release image: %s is not in the release catalogue", hc.Spec.Release.Image))
	} else {
		c.setTrue(hyperv1.ValidReleaseImage, hyperv1.AsExpectedReason, "Release image is valid")
		status.PayloadArch = hyperv1.PayloadArchType(o.Desired.Architecture)
	}
	switch {
	case o.Problem != nil:
		c.setFalse(hyperv1.ReconciliationSucceeded, hyperv1.ReconciliationErrorReason, o.Problem.Error())
	case o.Invalid != nil:
		c.setFalse(hyperv1.ReconciliationSucceeded, hyperv1.ReconciliationErrorReason, "configuration is invalid: "+o.Invalid.Error())
	default:
		// The reason is misspelled upstream, and consumers may compare it.
		c.setTrue(hyperv1.ReconciliationSucceeded, "ReconciliatonSucceeded", "Reconciliation completed successfully")
	}

	status.IgnitionEndpoint = serviceHost(hc, hyperv1.Ignition)
	if hcp == nil {
		c.setFalse(hyperv1.HostedClusterAvailable, hyperv1.WaitingForAvailableReason, "Waiting for hosted control plane to be healthy")
		for _, kind := range controlPlaneConditions {
			if kind != hyperv1.ClusterVersionRetrievedUpdates { // the operator never reports it as Unknown
				c.setUnknown(kind, hyperv1.StatusUnknownReason, missingMessage(kind, "The hosted control plane is not found"))
			}
		}
		c.setFalse(hyperv1.IgnitionEndpointAvailable, hyperv1.NotFoundReason, "Ignition server deployment not found")
	} else {
		c.setTrue(hyperv1.PlatformCredentialsFound, hyperv1.AsExpectedReason, "Required platform credentials are found")
		copyControlPlaneConditions(c, hcp, o)
		o.Encryption.setCondition(c)
		if o.Rollout.wave >= schedule.WaveControllers || o.Rollout.previous != "" {
			c.setTrue(hyperv1.IgnitionEndpointAvailable, hyperv1.AsExpectedReason, "Ignition server deployment is available")
		} else {
			c.setFalse(hyperv1.IgnitionEndpointAvailable, hyperv1.WaitingForAvailableReason, "Ignition server deployment is not yet available")
		}
		status.ControlPlaneEndpoint = hcp.Status.ControlPlaneEndpoint
		if o.Faults.Has(contract.FaultEndpointBroken) && status.ControlPlaneEndpoint.Port != 0 {
			status.ControlPlaneEndpoint.Port = brokenPort
		}
		if status.ControlPlaneEndpoint.Host == "" {
			status.ControlPlaneEndpoint.Port = routePort // the operator sets it, whatever the control plane reports
		}
		status.OAuthCallbackURLTemplate = hcp.Status.OAuthCallbackURLTemplate
		status.Configuration = hcp.Status.Configuration.DeepCopy()
		status.ControlPlaneVersion = *hcp.Status.ControlPlaneVersion.DeepCopy()
		status.ControlPlaneVersion.ObservedGeneration = generationIf(hc, len(status.ControlPlaneVersion.History) > 0)
		status.Version = hcp.Status.VersionStatus.DeepCopy()
		if status.Version != nil {
			status.Version.ObservedGeneration = hc.Generation
		}
	}
	if status.Version == nil {
		status.Version = &hyperv1.ClusterVersionStatus{
			Desired:            configRelease{Image: hc.Spec.Release.Image},
			ObservedGeneration: hc.Generation,
			History:            []updateHistory{{State: "Partial", Image: hc.Spec.Release.Image, StartedTime: metav1.NewTime(o.Now)}},
		}
	}
	decideProgress(c, o)

	status.KubeConfig = referenceIf(o.Kubeconfig, contract.AdminKubeconfig(hc.Name))
	status.CustomKubeconfig = referenceIf(o.CustomKubeconfig, contract.CustomKubeconfig(hc.Name))
	status.KubeadminPassword = referenceIf(o.KubeadminPassword, contract.KubeadminPassword(hc.Name))
	return status
}

// decideConfiguration reports whether the configuration of the HostedCluster is valid.
func decideConfiguration(c conditions, o *observation) {
	if o.Invalid != nil {
		c.setFalse(hyperv1.ValidHostedClusterConfiguration, hyperv1.InvalidConfigurationReason, o.Invalid.Error())
		return
	}
	c.setTrue(hyperv1.ValidHostedClusterConfiguration, hyperv1.AsExpectedReason, "Configuration passes validation")
}

// decideProblem returns the status of a cluster with a control plane that cannot be reconciled now. The conditions of
// the control plane do not change, because it continues to run.
func decideProblem(hc *hyperv1.HostedCluster, o *observation) hyperv1.HostedClusterStatus {
	status := *hc.Status.DeepCopy()
	c := conditions{list: &status.Conditions, now: metav1.NewTime(o.Now), generation: hc.Generation}
	if o.Invalid != nil {
		decideConfiguration(c, o)
	}
	c.setFalse(hyperv1.ReconciliationSucceeded, hyperv1.ReconciliationErrorReason, o.Problem.Error())
	c.setFalse(hyperv1.HostedClusterProgressing, hyperv1.BlockedReason, o.Problem.Error())
	return status
}

// decidePaused returns the status of a paused cluster whose control plane has not been available yet. It is not created any further.
func decidePaused(hc *hyperv1.HostedCluster, o *observation) hyperv1.HostedClusterStatus {
	status := *hc.Status.DeepCopy()
	c := conditions{list: &status.Conditions, now: metav1.NewTime(o.Now), generation: hc.Generation}
	c.setFalse(hyperv1.ReconciliationActive, hyperv1.ReconciliationPausedConditionReason, o.Pause.Message)
	c.setTrue(hyperv1.ReconciliationSucceeded, "ReconciliatonSucceeded", "Reconciliation completed successfully")
	decideProgress(c, o)
	return status
}

// copyControlPlaneConditions copies the conditions of the control plane. The HostedCluster reports the opposite of ClusterVersionFailing.
func copyControlPlaneConditions(c conditions, hcp *hyperv1.HostedControlPlane, o *observation) {
	for _, kind := range append([]hyperv1.ConditionType{hyperv1.HostedControlPlaneAvailable}, controlPlaneConditions...) {
		condition := findCondition(hcp.Status.Conditions, kind)
		if failing := findCondition(hcp.Status.Conditions, hyperv1.ClusterVersionFailing); kind == hyperv1.ClusterVersionSucceeding && failing != nil {
			condition = new(*failing)
			condition.Status = map[metav1.ConditionStatus]metav1.ConditionStatus{metav1.ConditionTrue: metav1.ConditionFalse, metav1.ConditionFalse: metav1.ConditionTrue}[failing.Status]
		}
		switch {
		case kind == hyperv1.ClusterVersionRetrievedUpdates && (condition == nil || condition.Status == metav1.ConditionUnknown):
			meta.RemoveStatusCondition(c.list, string(kind))
		case condition == nil:
			c.setUnknown(kind, hyperv1.StatusUnknownReason, missingMessage(kind, "Condition not found in the HCP"))
		case o.Faults.Has(contract.FaultConditionsUnknown) && kind != hyperv1.HostedClusterAvailable:
			c.setUnknown(kind, hyperv1.StatusUnknownReason, "The hosted control plane is not found")
		default:
			c.set(kind, condition.Status, condition.Reason, condition.Message)
		}
	}
}

// missingMessage returns the message of a condition that the control plane does not report.
func missingMessage(kind hyperv1.ConditionType, otherwise string) string {
	if strings.HasPrefix(string(kind), "ClusterVersion") {
		return "Condition not found in the CVO."
	}
	return otherwise
}

// decideProgress sets Progressing, which the operator derives only from the release: it is True until the ClusterVersion inside the cluster
// names the release of the spec, and never during a creation.
func decideProgress(c conditions, o *observation) {
	switch {
	case o.Pause.Active, o.Invalid != nil, o.Problem != nil, o.Desired == nil, o.UpgradeRefusal != "":
		message := o.UpgradeRefusal
		if o.Invalid != nil {
			message = "ValidConfiguration condition is false: " + o.Invalid.Error()
		}
		if o.Pause.Active {
			message = "ReconciliationActive condition is false: " + o.Pause.Message
		}
		if o.Problem != nil {
			message = o.Problem.Error()
		}
		if o.Desired == nil {
			message = "ValidReleaseImage condition is false"
		}
		c.setFalse(hyperv1.HostedClusterProgressing, hyperv1.BlockedReason, message)
	case o.Rollout.previous != "" && !o.Rollout.runsClusterVersionOperator():
		c.setTrue(hyperv1.HostedClusterProgressing, "Progressing", "HostedCluster is deploying, upgrading, or reconfiguring")
	default:
		c.setFalse(hyperv1.HostedClusterProgressing, hyperv1.AsExpectedReason, "HostedCluster is at expected version")
	}
}

type foundCondition metav1.Condition

func (f *foundCondition) isTrue() bool { return f != nil && f.Status == metav1.ConditionTrue }

func findCondition(list []metav1.Condition, kind hyperv1.ConditionType) *foundCondition {
	return (*foundCondition)(meta.FindStatusCondition(list, string(kind)))
}

func referenceIf(exists bool, name string) *corev1.LocalObjectReference {
	if !exists {
		return nil
	}
	return &corev1.LocalObjectReference{Name: name}
}

func generationIf(hc *hyperv1.HostedCluster, known bool) int64 {
	if !known {
		return 0
	}
	return hc.Generation
}

// serviceHost returns the host name under which a service is published; "" if it has none.
func serviceHost(hc *hyperv1.HostedCluster, service hyperv1.ServiceType) string {
	for _, s := range hc.Spec.Services {
		if s.Service == service && s.Route != nil {
			return s.Route.Hostname
		}
	}
	return ""
}

// externalHost returns the host name under which the API server is published; "" if it has none.
func externalHost(hc *hyperv1.HostedCluster) string { return serviceHost(hc, hyperv1.APIServer) }

func oauthTemplate(hc *hyperv1.HostedCluster) string {
	host := serviceHost(hc, hyperv1.OAuthServer)
	if host == "" {
		return ""
	}
	return "https://" + host + ":" + strconv.Itoa(routePort) + "/oauth2callback/[identity-provider-name]"
}
