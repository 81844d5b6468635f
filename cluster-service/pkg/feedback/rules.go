package feedback

import (
	"maps"
	"slices"
	"strings"

	certificatesv1alpha1 "github.com/openshift/hypershift/api/certificates/v1alpha1"
	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	workv1 "open-cluster-management.io/api/work/v1"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
)

// DigestAnnotation is the annotation of a work's main object with the digest of the rendering. One server-side apply sets it
// together with every other field that Cluster Service owns, so reading it back proves that all of them were accepted.
const DigestAnnotation = "clusterservice.hcpmesh.io/digest"

// Names of the reported values.
const (
	nameConditions  = "conditions"
	nameUID         = "uid"
	nameDigest      = "digest"
	nameHost        = "endpointHost"
	namePort        = "endpointPort"
	nameCPVersions  = "controlPlaneVersions"
	nameVersions    = "versions"
	nameKubeconfig  = "kubeconfig"
	nameReplicas    = "replicas"
	nameSpecReps    = "specReplicas"
	nameVersion     = "version"
	nameImage       = "image"
	nameGeneration  = "generation"
	nameEncryption  = "encryptionKey"
	nameNodes       = "nodeVersions"
	nameClients     = "oidcClients"
	nameCertificate = "certificate"
	nameServingCA   = "servingCA"
	nameUses        = "credentialUses"
	nameEgress      = "egressFailures"
	nameInside      = "inside"
	nameLogs        = "logs"
	nameFinalizers  = "finalizers"
	nameCreateTime  = "createTime"
	nameDeleteTime  = "deleteTime"
	nameForeign     = "foreignFields"
)

// Types of conditions of a HostedCluster.
const (
	Available   = string(hyperv1.HostedClusterAvailable)
	Progressing = string(hyperv1.HostedClusterProgressing)
	Degraded    = string(hyperv1.HostedClusterDegraded)
	// Upgradeable is true if the cluster is ready for another minor version.
	Upgradeable = string(hyperv1.ClusterVersionUpgradeable)
	// ReconciliationSucceeded is about the last reconciliation of the whole HostedCluster.
	ReconciliationSucceeded = string(hyperv1.ReconciliationSucceeded)
	// ReconciliationActive is false while a HostedCluster or a NodePool is paused.
	ReconciliationActive = string(hyperv1.ReconciliationActive)
	// ValidConfiguration is the operator's verdict on spec.configuration, ValidControlPlaneConfiguration the control plane's.
	ValidConfiguration             = string(hyperv1.ValidHostedClusterConfiguration)
	ValidControlPlaneConfiguration = string(hyperv1.ValidHostedControlPlaneConfiguration)
	// ValidKMS is true if the customer's key can be used.
	ValidKMS = string(hyperv1.ValidAzureKMSConfig)
	// DataEncrypted is true if all of etcd's data is encrypted with the customer's active key. Newer releases of HyperShift
	// report it; the Go types do not have it yet.
	DataEncrypted = "EtcdDataEncryptionUpToDate"
	// EtcdAvailable, APIServerAvailable, DataPlaneConnection and DNSReachable tell which part of a cluster does not work.
	EtcdAvailable       = string(hyperv1.EtcdAvailable)
	APIServerAvailable  = string(hyperv1.KubeAPIServerAvailable)
	DataPlaneConnection = string(hyperv1.DataPlaneConnectionAvailable)
	DNSReachable        = string(hyperv1.ExternalDNSReachable)
	// InfrastructureReady is true if the control plane has the addresses of its services.
	InfrastructureReady = string(hyperv1.InfrastructureReady)
	// VersionSucceeding is false if the cluster-version operator cannot apply a part of the release. Its message then names the cluster
	// operators that fail.
	VersionSucceeding = string(hyperv1.ClusterVersionSucceeding)
)

// PartConditions are the conditions about parts of a HostedCluster. They are stored without messages: their reasons are
// sufficient, and a message that changes would store the report again. Only the message of a false VersionSucceeding is stored.
var PartConditions = []string{EtcdAvailable, APIServerAvailable, DataPlaneConnection, DNSReachable, VersionSucceeding}

// KeyVaultError is the reason of a false ValidKMS if HyperShift does not reach the key vault, or the vault refuses the key.
const KeyVaultError = hyperv1.AzureErrorReason

// ValidReleaseImage is a type of condition of HostedClusters and NodePools.
const ValidReleaseImage = string(hyperv1.ValidReleaseImage)

// Types of conditions of a NodePool.
const (
	Ready              = hyperv1.NodePoolReadyConditionType
	AllMachines        = hyperv1.NodePoolAllMachinesReadyConditionType
	AllNodes           = hyperv1.NodePoolAllNodesHealthyConditionType
	UpdatingVersion    = hyperv1.NodePoolUpdatingVersionConditionType
	UpdatingConfig     = hyperv1.NodePoolUpdatingConfigConditionType
	UpdatingTemplate   = hyperv1.NodePoolUpdatingPlatformMachineTemplateConditionType
	AutoscalingEnabled = hyperv1.NodePoolAutoscalingEnabledConditionType
	AutorepairEnabled  = hyperv1.NodePoolAutorepairEnabledConditionType
	VersionSkew        = hyperv1.NodePoolSupportedVersionSkewConditionType
)

// Types of conditions of certificate signing requests and certificate revocation requests.
const (
	CertificateDenied = string(certificatesv1.CertificateDenied)
	CertificateFailed = string(certificatesv1.CertificateFailed)

	SignerClassValid            = certificatesv1alpha1.SignerClassValidType
	PreviousCertificatesRevoked = certificatesv1alpha1.PreviousCertificatesRevokedType
)

// RevocationConditions are the conditions of a certificate revocation request, in the order in which they become True.
var RevocationConditions = []string{SignerClassValid, certificatesv1alpha1.RootCertificatesRegeneratedType,
	certificatesv1alpha1.NewCertificatesTrustedType, certificatesv1alpha1.LeafCertificatesRegeneratedType, PreviousCertificatesRevoked}

// storedConditions are the types of conditions that the state machines read or report. Others are not stored.
var storedConditions = func() map[string]bool {
	stored := map[string]bool{}
	for _, name := range slices.Concat(
		[]string{Progressing, Degraded, ValidReleaseImage, ReconciliationActive, ValidConfiguration, ValidControlPlaneConfiguration, ValidKMS, Upgradeable},
		[]string{AutoscalingEnabled, AutorepairEnabled, VersionSkew},
		[]string{string(certificatesv1.CertificateApproved), CertificateDenied, CertificateFailed, RolloutComplete},
		slices.Collect(maps.Keys(awaited)), PartConditions, RevocationConditions, namespaceConditions) {
		stored[name] = true
	}
	return stored
}()

// awaited are the conditions for which requests wait, with the status that ends the wait.
var awaited = map[string]string{
	InfrastructureReady: "True", EtcdAvailable: "True", APIServerAvailable: "True", DNSReachable: "True", Available: "True", ReconciliationSucceeded: "True", DataEncrypted: "True",
	AllMachines: "True", AllNodes: "True", Ready: "True", UpdatingVersion: "False", UpdatingConfig: "False", UpdatingTemplate: "False",
}

// AwaitedStatus returns the status of a condition of a HostedCluster or a NodePool for which requests wait; empty if they wait for none.
func AwaitedStatus(condition string) string { return awaited[condition] }

// conditions makes the agent report all conditions of an object as one JSON value. Published agents and ours report JSON
// values of up to 1 MiB and 400 KiB. The conditions of a HostedCluster usually take less than 20 KiB.
var conditions = workv1.JsonPath{Name: nameConditions, Path: ".status.conditions"}

var (
	uid        = workv1.JsonPath{Name: nameUID, Path: ".metadata.uid"}
	digest     = workv1.JsonPath{Name: nameDigest, Path: annotationPath(DigestAnnotation)}
	image      = workv1.JsonPath{Name: nameImage, Path: ".spec.release.image"}
	generation = workv1.JsonPath{Name: nameGeneration, Path: ".metadata.generation"}
	version    = workv1.JsonPath{Name: nameVersion, Path: ".status.version"}
	foreign    = workv1.JsonPath{Name: nameForeign, Path: annotationPath(maestroapi.AnnotationForeignFields)}
	// finalizer names tell who delays a deletion.
	finalizerNames = workv1.JsonPath{Name: nameFinalizers, Path: ".metadata.finalizers"}
)

// HostedClusterRules returns the values of a HostedCluster that the state machine of a cluster needs, and no others: every
// process between the agent and the store handles each status update.
func HostedClusterRules() []workv1.FeedbackRule {
	return rules(conditions, uid, digest, image, generation, finalizerNames, foreign,
		workv1.JsonPath{Name: nameHost, Path: ".status.controlPlaneEndpoint.host"},
		workv1.JsonPath{Name: namePort, Path: ".status.controlPlaneEndpoint.port"},
		workv1.JsonPath{Name: nameCPVersions, Path: ".status.controlPlaneVersion.history"},
		workv1.JsonPath{Name: nameVersions, Path: ".status.version.history"},
		workv1.JsonPath{Name: nameKubeconfig, Path: ".status.kubeconfig.name"},
		workv1.JsonPath{Name: nameEncryption, Path: ".status.secretEncryption.activeKey.azure.keyVersion"},
		workv1.JsonPath{Name: nameClients, Path: ".status.configuration.authentication.oidcClients"},
		workv1.JsonPath{Name: nameUses, Path: annotationPath(hostedreport.CredentialAnnotation)},
		workv1.JsonPath{Name: nameEgress, Path: annotationPath(hostedreport.EgressAnnotation)},
		workv1.JsonPath{Name: nameInside, Path: annotationPath(hostedreport.InsideAnnotation)},
		workv1.JsonPath{Name: nameLogs, Path: annotationPath(hostedreport.LogAnnotation)})
}

// NodePoolRules returns the values of a NodePool that its state machine needs.
func NodePoolRules() []workv1.FeedbackRule {
	return rules(conditions, uid, digest, image, generation, version, finalizerNames, foreign,
		workv1.JsonPath{Name: nameReplicas, Path: ".status.replicas"},
		workv1.JsonPath{Name: nameSpecReps, Path: ".spec.replicas"},
		workv1.JsonPath{Name: nameNodes, Path: ".status.nodesInfo.nodeVersions"})
}

// ComponentRules returns the values of a control plane's component that show the progress of a rollout.
func ComponentRules() []workv1.FeedbackRule { return rules(conditions, version) }

// CertificateRequestRules returns the outcome of a certificate signing request.
func CertificateRequestRules() []workv1.FeedbackRule {
	return rules(conditions, workv1.JsonPath{Name: nameCertificate, Path: ".status.certificate"})
}

// ServingCARules returns one key of a Secret that holds certificates, and nothing else of the Secret.
func ServingCARules(key string) []workv1.FeedbackRule {
	return rules(workv1.JsonPath{Name: nameServingCA, Path: ".data." + escapeDots(key)})
}

// RevocationRules returns the progress of a certificate revocation request.
func RevocationRules() []workv1.FeedbackRule { return rules(conditions) }

// NamespaceRules returns the conditions with which the namespace controller explains why a namespace still exists. A
// namespace has none of them until it is deleted.
func NamespaceRules() []workv1.FeedbackRule { return rules(conditions) }

// ControlPlaneNamespaceRules returns the identity of the namespace of a control plane, and since when it is being deleted.
func ControlPlaneNamespaceRules() []workv1.FeedbackRule {
	return rules(uid, workv1.JsonPath{Name: nameCreateTime, Path: ".metadata.creationTimestamp"},
		workv1.JsonPath{Name: nameDeleteTime, Path: ".metadata.deletionTimestamp"})
}

func rules(paths ...workv1.JsonPath) []workv1.FeedbackRule {
	return []workv1.FeedbackRule{{Type: workv1.JSONPathsType, JsonPaths: paths}}
}

func annotationPath(name string) string { return ".metadata.annotations." + escapeDots(name) }

func escapeDots(key string) string { return strings.ReplaceAll(key, ".", `\.`) }

// Types of conditions of a namespace that is being deleted.
const (
	contentRemaining    = string(corev1.NamespaceContentRemaining)
	finalizersRemaining = string(corev1.NamespaceFinalizersRemaining)
	discoveryFailure    = string(corev1.NamespaceDeletionDiscoveryFailure)
	parsingFailure      = string(corev1.NamespaceDeletionGVParsingFailure)
	contentFailure      = string(corev1.NamespaceDeletionContentFailure)
)

var namespaceConditions = []string{contentRemaining, finalizersRemaining, discoveryFailure, parsingFailure, contentFailure}
