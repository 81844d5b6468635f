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

// Observed is what a pass found out about a hosted cluster. Deciding its status needs nothing else.
type Observed struct {
	Now time.Time
	// Desired is the release of spec.release.image; nil if the catalogue does not know it.
	Desired *release.Release
	// Installing is the release the control plane is asked to run, which stays behind Desired while an upgrade is
	// refused; Blocked says why it is.
	Installing *release.Release
	Blocked    string
	// Updates are the releases that can be moved to.
	Updates []release.Update
	// Pause is what spec.pausedUntil means now.
	Pause contract.Pause
	// Problem keeps the pass from going on: a missing secret, an invalid field.
	Problem error
	// Phase is how far the control plane has come. It is Accepted as long as there is no HostedControlPlane.
	Phase schedule.Phase
	// Rollout is how far its components have come.
	Rollout rollout
	// Endpoint is where the API server is or will be reached; the zero value until that is known.
	Endpoint hyperv1.APIEndpoint
	// Secrets names the secrets that exist beside the HostedCluster.
	Kubeconfig, CustomKubeconfig, KubeadminPassword bool
	// ReadyNodes counts the nodes of all node pools that are Ready.
	ReadyNodes int
	// Authentication is the file that tells the API server whose tokens to take; nil while it is not known.
	Authentication []byte
	// ConfigurationProblem is what is wrong with the configuration that was asked for; the one before goes on.
	ConfigurationProblem error
	// OIDCClients are the components that sign users in with an external issuer.
	OIDCClients []configv1.OIDCClientStatus
	// Encryption is how the encryption of etcd's data stands; nil while nothing is known of it.
	Encryption *encryption
	Faults     contract.Faults
}

// conditions collects conditions with the rules of the API: a transition time moves only when a status does.
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

func (c conditions) yes(kind hyperv1.ConditionType, reason, message string) {
	c.set(kind, metav1.ConditionTrue, reason, message)
}

func (c conditions) no(kind hyperv1.ConditionType, reason, message string) {
	c.set(kind, metav1.ConditionFalse, reason, message)
}

func (c conditions) unknown(kind hyperv1.ConditionType, reason, message string) {
	c.set(kind, metav1.ConditionUnknown, reason, message)
}

// fromControlPlane are the conditions a HostedCluster copies from its HostedControlPlane.
var fromControlPlane = []hyperv1.ConditionType{
	hyperv1.InfrastructureReady, hyperv1.KubeAPIServerAvailable, hyperv1.EtcdAvailable, hyperv1.ValidHostedControlPlaneConfiguration,
	hyperv1.ExternalDNSReachable, hyperv1.ValidReleaseInfo, hyperv1.ValidAzureKMSConfig, hyperv1.HostedClusterDegraded,
	hyperv1.ClusterVersionSucceeding, hyperv1.ClusterVersionProgressing, hyperv1.ClusterVersionAvailable,
	hyperv1.ClusterVersionReleaseAccepted, hyperv1.ClusterVersionRetrievedUpdates, hyperv1.ClusterVersionUpgradeable,
	hyperv1.DataPlaneConnectionAvailable, hyperv1.ControlPlaneConnectionAvailable,
	"ConfigOperatorReconciliationSucceeded",
}

// decideControlPlane returns the HostedControlPlane's status.
func decideControlPlane(hc *hyperv1.HostedCluster, hcp *hyperv1.HostedControlPlane, o *Observed) hyperv1.HostedControlPlaneStatus {
	status := *hcp.Status.DeepCopy()
	c := conditions{list: &status.Conditions, now: metav1.NewTime(o.Now), generation: hcp.Generation}

	if o.ConfigurationProblem != nil {
		c.no(hyperv1.ValidHostedControlPlaneConfiguration, hyperv1.InvalidConfigurationReason, o.ConfigurationProblem.Error())
	} else {
		c.yes(hyperv1.ValidHostedControlPlaneConfiguration, hyperv1.AsExpectedReason, "Configuration passes validation")
	}
	status.Configuration = configurationStatus(o)
	c.yes(hyperv1.ValidReleaseInfo, hyperv1.AsExpectedReason, hyperv1.AllIsWellMessage)
	infrastructure := o.Phase > schedule.Infrastructure
	if infrastructure {
		c.yes(hyperv1.InfrastructureReady, hyperv1.AsExpectedReason, hyperv1.AllIsWellMessage)
	} else {
		c.no(hyperv1.InfrastructureReady, hyperv1.WaitingOnInfrastructureReadyReason, "Cluster infrastructure is still provisioning")
	}
	switch {
	case externalHost(hc) == "":
		c.unknown(hyperv1.ExternalDNSReachable, hyperv1.StatusUnknownReason, "External DNS is not configured")
	case infrastructure:
		c.yes(hyperv1.ExternalDNSReachable, hyperv1.AsExpectedReason, hyperv1.AllIsWellMessage)
	default:
		c.no(hyperv1.ExternalDNSReachable, hyperv1.ExternalDNSHostNotReachableReason, "The external host name does not resolve yet")
	}
	decideKMS(c, hc, o)
	o.Encryption.set(c)
	etcdReady := decideEtcd(c, o)
	apiReady := decideAPIServer(c, o)

	wasAvailable := meta.IsStatusConditionTrue(hcp.Status.Conditions, string(hyperv1.HostedControlPlaneAvailable))
	waiting := o.Rollout.unavailable()
	etcd, api := find(status.Conditions, hyperv1.EtcdAvailable), find(status.Conditions, hyperv1.KubeAPIServerAvailable)
	switch {
	case !infrastructure:
		c.no(hyperv1.HostedControlPlaneAvailable, hyperv1.WaitingOnInfrastructureReadyReason, "Cluster infrastructure is still provisioning")
	case o.Phase <= schedule.Kubeconfig:
		c.no(hyperv1.HostedControlPlaneAvailable, hyperv1.KubeconfigWaitingForCreateReason, "Waiting for hosted control plane kubeconfig to be created")
	case !etcdReady:
		c.no(hyperv1.HostedControlPlaneAvailable, etcd.Reason, etcd.Message)
	case !apiReady:
		c.no(hyperv1.HostedControlPlaneAvailable, api.Reason, api.Message)
	case o.Phase == schedule.LoadBalancer:
		c.no(hyperv1.HostedControlPlaneAvailable, hyperv1.KASLoadBalancerNotReachableReason, "The API server's load balancer is not reachable yet")
	case !wasAvailable && len(waiting) > 0:
		c.no(hyperv1.HostedControlPlaneAvailable, hyperv1.ControlPlaneComponentsNotAvailable, "Waiting for components to be available: "+strings.Join(waiting, ", "))
	case !wasAvailable && o.Phase < schedule.Done:
		c.no(hyperv1.HostedControlPlaneAvailable, hyperv1.ControlPlaneComponentsNotAvailable, "Waiting for components to be available: cluster-version-operator")
	default:
		c.yes(hyperv1.HostedControlPlaneAvailable, hyperv1.AsExpectedReason, "The hosted control plane is available")
	}
	switch {
	case o.Faults.Has(contract.FaultDegraded):
		c.yes(hyperv1.HostedClusterDegraded, "UnavailableReplicas", "[kube-controller-manager deployment has 1 unavailable replicas]")
	case infrastructure && apiReady && len(waiting) > 0:
		c.yes(hyperv1.HostedClusterDegraded, "UnavailableReplicas", "["+waiting[0]+" deployment has 1 unavailable replicas]")
	default:
		c.no(hyperv1.HostedClusterDegraded, hyperv1.AsExpectedReason, "The hosted cluster is not degraded")
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
		status.OAuthCallbackURLTemplate = oauthTemplate(hc)
	}
	if o.Phase > schedule.Kubeconfig {
		status.KubeConfig = &hyperv1.KubeconfigSecretRef{Name: contract.AdminKubeconfigSecret, Key: "kubeconfig"}
		status.KubeadminPassword = &corev1.LocalObjectReference{Name: contract.KubeadminPasswordSecret}
	}
	status.NodeCount = new(o.ReadyNodes)
	return status
}

func decideKMS(c conditions, hc *hyperv1.HostedCluster, o *Observed) {
	kms := hc.Spec.SecretEncryption != nil && hc.Spec.SecretEncryption.KMS != nil && hc.Spec.SecretEncryption.KMS.Azure != nil
	switch {
	case !kms:
		c.unknown(hyperv1.ValidAzureKMSConfig, hyperv1.StatusUnknownReason, "Azure KMS is not configured")
	case hc.Spec.SecretEncryption.KMS.Azure.KeyVaultAccess == hyperv1.AzureKeyVaultPrivate:
		c.unknown(hyperv1.ValidAzureKMSConfig, hyperv1.StatusUnknownReason, "The key vault is private and cannot be reached for validation")
	case o.Faults.Has(contract.FaultKMSInvalid):
		c.no(hyperv1.ValidAzureKMSConfig, hyperv1.AzureErrorReason, "failed to encrypt data using KMS (key vault refused the key)")
	default:
		c.yes(hyperv1.ValidAzureKMSConfig, hyperv1.AsExpectedReason, hyperv1.AllIsWellMessage)
	}
}

func decideEtcd(c conditions, o *Observed) bool {
	switch {
	case o.Phase <= schedule.EtcdMissing:
		c.no(hyperv1.EtcdAvailable, hyperv1.EtcdStatefulSetNotFoundReason, "Etcd StatefulSet not found")
	case o.Phase == schedule.EtcdQuorum || o.Faults.Has(contract.FaultEtcdQuorumLoss):
		c.no(hyperv1.EtcdAvailable, hyperv1.EtcdWaitingForQuorumReason, "Waiting for etcd to reach quorum")
	default:
		c.yes(hyperv1.EtcdAvailable, hyperv1.EtcdQuorumAvailableReason, "")
		return true
	}
	return false
}

func decideAPIServer(c conditions, o *Observed) bool {
	switch {
	case o.Phase <= schedule.APIServerMissing:
		c.no(hyperv1.KubeAPIServerAvailable, hyperv1.NotFoundReason, "Kube APIServer deployment not found")
	case o.Phase == schedule.APIServerStarting || o.Faults.Has(contract.FaultEtcdQuorumLoss):
		c.no(hyperv1.KubeAPIServerAvailable, hyperv1.WaitingForAvailableReason, "Waiting for Kube APIServer deployment to become available")
	default:
		c.yes(hyperv1.KubeAPIServerAvailable, hyperv1.AsExpectedReason, "Kube APIServer deployment is available")
		return true
	}
	return false
}

// decideClusterVersion writes what the cluster-version operator reports from inside the cluster. It cannot finish
// without nodes: what it installs has nowhere to run.
func decideClusterVersion(c conditions, status *hyperv1.HostedControlPlaneStatus, o *Observed, available bool) {
	if !available {
		for _, kind := range fromControlPlane {
			if strings.HasPrefix(string(kind), "ClusterVersion") && find(*c.list, kind) == nil {
				c.unknown(kind, hyperv1.StatusUnknownReason, "Condition not found in the CVO.")
			}
		}
		if find(*c.list, "ConfigOperatorReconciliationSucceeded") == nil {
			c.unknown("ConfigOperatorReconciliationSucceeded", hyperv1.StatusUnknownReason, "The config operator does not run yet")
		}
		return
	}
	current := status.VersionStatus.History[0]
	finished := current.State == "Completed"
	ever := slices.ContainsFunc(status.VersionStatus.History, func(h updateHistory) bool { return h.State == "Completed" })
	c.yes(hyperv1.ClusterVersionReleaseAccepted, "PayloadLoaded", fmt.Sprintf("Payload loaded version=%q image=%q architecture=%q", current.Version, current.Image, o.Installing.Architecture))
	c.yes(hyperv1.ClusterVersionRetrievedUpdates, hyperv1.FromClusterVersionReason, "")
	if o.Faults.Has(contract.FaultNotUpgradeable) {
		c.no(hyperv1.ClusterVersionUpgradeable, "AdminAckRequired", "This cluster has APIs in use that the next minor version takes away; an administrator must acknowledge that.")
	} else {
		c.yes(hyperv1.ClusterVersionUpgradeable, hyperv1.FromClusterVersionReason, "")
	}
	c.yes("ConfigOperatorReconciliationSucceeded", hyperv1.AsExpectedReason, "")
	if ever {
		c.yes(hyperv1.ClusterVersionAvailable, hyperv1.FromClusterVersionReason, "Done applying "+lastCompleted(status.VersionStatus.History))
	} else {
		c.no(hyperv1.ClusterVersionAvailable, hyperv1.FromClusterVersionReason, "")
	}
	if finished {
		c.yes(hyperv1.ClusterVersionSucceeding, hyperv1.FromClusterVersionReason, "")
		c.no(hyperv1.ClusterVersionProgressing, hyperv1.FromClusterVersionReason, "Cluster version is "+current.Version)
		return
	}
	if o.ReadyNodes == 0 && o.Rollout.complete() {
		c.no(hyperv1.ClusterVersionSucceeding, "ClusterOperatorsNotAvailable", "Cluster operators console, dns, image-registry, ingress, monitoring, node-tuning are not available")
	} else {
		c.yes(hyperv1.ClusterVersionSucceeding, hyperv1.FromClusterVersionReason, "")
	}
	c.yes(hyperv1.ClusterVersionProgressing, hyperv1.FromClusterVersionReason, "Working towards "+current.Version)
}

func decideConnections(c conditions, o *Observed, available bool) {
	switch {
	case !available:
		c.unknown(hyperv1.DataPlaneConnectionAvailable, hyperv1.StatusUnknownReason, "The hosted control plane is not available")
		c.unknown(hyperv1.ControlPlaneConnectionAvailable, hyperv1.StatusUnknownReason, "The hosted control plane is not available")
	case o.ReadyNodes == 0:
		c.unknown(hyperv1.DataPlaneConnectionAvailable, hyperv1.DataPlaneConnectionNoWorkerNodesAvailableReason, "No worker nodes available")
		c.unknown(hyperv1.ControlPlaneConnectionAvailable, hyperv1.ControlPlaneConnectionNoWorkerNodesAvailableReason, "No worker nodes available")
	default:
		c.yes(hyperv1.DataPlaneConnectionAvailable, hyperv1.AsExpectedReason, hyperv1.AllIsWellMessage)
		c.yes(hyperv1.ControlPlaneConnectionAvailable, hyperv1.AsExpectedReason, hyperv1.AllIsWellMessage)
	}
}

// decide returns the HostedCluster's status; hcp is nil while there is no control plane.
func decide(hc *hyperv1.HostedCluster, hcp *hyperv1.HostedControlPlane, o *Observed) hyperv1.HostedClusterStatus {
	status := *hc.Status.DeepCopy()
	c := conditions{list: &status.Conditions, now: metav1.NewTime(o.Now), generation: hc.Generation}

	switch {
	case o.Pause.Active:
		c.no(hyperv1.ReconciliationActive, hyperv1.ReconciliationPausedConditionReason, o.Pause.Message)
		return status
	default:
		c.yes(hyperv1.ReconciliationActive, hyperv1.AsExpectedReason, "Reconciliation active on resource")
	}

	c.yes(hyperv1.ValidHostedClusterConfiguration, hyperv1.AsExpectedReason, "Configuration passes validation")
	c.yes(hyperv1.SupportedHostedCluster, hyperv1.AsExpectedReason, "HostedCluster is supported by operator configuration")
	if o.Desired == nil {
		c.no(hyperv1.ValidReleaseImage, hyperv1.InvalidImageReason, fmt.Sprintf("failed to lookup release image: %s is not in the release catalogue", hc.Spec.Release.Image))
	} else {
		c.yes(hyperv1.ValidReleaseImage, hyperv1.AsExpectedReason, "Release image is valid")
		status.PayloadArch = hyperv1.PayloadArchType(o.Desired.Architecture)
	}
	if o.Problem != nil {
		c.no(hyperv1.ReconciliationSucceeded, hyperv1.ReconcileErrorReason, o.Problem.Error())
	} else {
		// The reason is misspelt upstream, and consumers may compare it.
		c.yes(hyperv1.ReconciliationSucceeded, "ReconciliatonSucceeded", "Reconciliation completed successfully")
	}

	if hcp == nil {
		c.no(hyperv1.HostedClusterAvailable, hyperv1.WaitingForAvailableReason, "Waiting for hosted control plane to be healthy")
		for _, kind := range fromControlPlane {
			c.unknown(kind, hyperv1.StatusUnknownReason, "The hosted control plane is not found")
		}
		c.no(hyperv1.IgnitionEndpointAvailable, hyperv1.NotFoundReason, "Ignition server deployment not found")
	} else {
		c.yes(hyperv1.PlatformCredentialsFound, hyperv1.AsExpectedReason, "Required platform credentials are found")
		bubble(c, hcp, o)
		o.Encryption.set(c)
		if o.Rollout.wave >= schedule.WaveControllers || o.Rollout.previous != "" {
			c.yes(hyperv1.IgnitionEndpointAvailable, hyperv1.AsExpectedReason, "Ignition server deployment is available")
			status.IgnitionEndpoint = serviceHost(hc, hyperv1.Ignition)
		} else {
			c.no(hyperv1.IgnitionEndpointAvailable, hyperv1.WaitingForAvailableReason, "Ignition server deployment is not yet available")
		}
		status.ControlPlaneEndpoint = hcp.Status.ControlPlaneEndpoint
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
	decideProgress(c, hc, hcp, o)

	status.KubeConfig = referenceIf(o.Kubeconfig, contract.AdminKubeconfig(hc.Name))
	status.CustomKubeconfig = referenceIf(o.CustomKubeconfig, contract.CustomKubeconfig(hc.Name))
	status.KubeadminPassword = referenceIf(o.KubeadminPassword, contract.KubeadminPassword(hc.Name))
	return status
}

// decideProblem returns the status of a cluster whose control plane exists and cannot be looked after now: what was
// reported of the control plane stays, because it goes on as it was.
func decideProblem(hc *hyperv1.HostedCluster, o *Observed) hyperv1.HostedClusterStatus {
	status := *hc.Status.DeepCopy()
	c := conditions{list: &status.Conditions, now: metav1.NewTime(o.Now), generation: hc.Generation}
	c.no(hyperv1.ReconciliationSucceeded, hyperv1.ReconcileErrorReason, o.Problem.Error())
	c.no(hyperv1.HostedClusterProgressing, hyperv1.BlockedReason, o.Problem.Error())
	return status
}

// bubble copies the control plane's conditions.
func bubble(c conditions, hcp *hyperv1.HostedControlPlane, o *Observed) {
	for _, kind := range append([]hyperv1.ConditionType{hyperv1.HostedControlPlaneAvailable}, fromControlPlane...) {
		condition := find(hcp.Status.Conditions, kind)
		switch {
		case condition == nil:
			c.unknown(kind, hyperv1.StatusUnknownReason, "The hosted control plane does not report it")
		case o.Faults.Has(contract.FaultConditionsUnknown) && kind != hyperv1.HostedClusterAvailable:
			c.unknown(kind, hyperv1.StatusUnknownReason, "The hosted control plane is not found")
		default:
			c.set(kind, condition.Status, condition.Reason, condition.Message)
		}
	}
}

func decideProgress(c conditions, hc *hyperv1.HostedCluster, hcp *hyperv1.HostedControlPlane, o *Observed) {
	switch {
	case o.Problem != nil, o.Desired == nil, o.Blocked != "":
		message := o.Blocked
		if o.Problem != nil {
			message = o.Problem.Error()
		}
		if o.Desired == nil {
			message = "ValidReleaseImage condition is false"
		}
		c.no(hyperv1.HostedClusterProgressing, hyperv1.BlockedReason, message)
	case hcp == nil || !find(*c.list, hyperv1.HostedClusterAvailable).isTrue() || !o.Rollout.complete() || o.Installing != o.Desired:
		c.yes(hyperv1.HostedClusterProgressing, "Progressing", "HostedCluster is deploying, upgrading, or reconfiguring")
	default:
		c.no(hyperv1.HostedClusterProgressing, hyperv1.AsExpectedReason, "HostedCluster is at expected version")
	}
}

type foundCondition metav1.Condition

func (f *foundCondition) isTrue() bool { return f != nil && f.Status == metav1.ConditionTrue }

func find(list []metav1.Condition, kind hyperv1.ConditionType) *foundCondition {
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

// serviceHost is the host name a service is published under; empty if it has none.
func serviceHost(hc *hyperv1.HostedCluster, service hyperv1.ServiceType) string {
	for _, s := range hc.Spec.Services {
		if s.Service == service && s.Route != nil {
			return s.Route.Hostname
		}
	}
	return ""
}

// externalHost is the host name under which the API server is published, if any.
func externalHost(hc *hyperv1.HostedCluster) string { return serviceHost(hc, hyperv1.APIServer) }

func oauthTemplate(hc *hyperv1.HostedCluster) string {
	host := serviceHost(hc, hyperv1.OAuthServer)
	if host == "" {
		return ""
	}
	return "https://" + host + ":" + strconv.Itoa(443) + "/oauth2callback/[identity-provider-name]"
}
