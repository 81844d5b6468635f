// Package feedback reads what a management cluster reports of one work: the status of a Maestro resource bundle, as the
// work agent wrote it. The JSON paths by which the agent is asked (Rules) and the reading of its answers (Decode) stand
// together here. Everything decoded comes from outside: a value that is missing or of another type is absent, never a
// panic and never a guess.
package feedback

import (
	"encoding/json"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/hcpmesh/hcpmesh/internal/credentialuse"
)

// Condition is one condition of an observed object.
type Condition struct {
	Status  string `json:"status,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// Release is an entry of a version history.
type Release struct {
	Version string `json:"version"`
	Image   string `json:"image"`
	// State is Completed or Partial.
	State string `json:"state"`
}

// NodeVersion counts the nodes of a NodePool that run one release.
type NodeVersion struct {
	Version string `json:"ocpVersion"`
	Ready   int64  `json:"readyNodeCount"`
	Unready int64  `json:"unreadyNodeCount"`
}

// Observed is what is known of a work on its management cluster. Its JSON form is stored.
type Observed struct {
	// Applied is the agent's word on whether all manifests were applied.
	Applied Condition `json:"applied,omitzero"`
	// Deleted says that all manifests are gone from the management cluster.
	Deleted bool `json:"deleted,omitempty"`
	// Digest is the annotation read back from the work's main object: which rendering it carries.
	Digest string `json:"digest,omitempty"`

	// Conditions of the main object, by type, of those that are asked for.
	Conditions map[string]Condition `json:"conditions,omitempty"`
	// EndpointHost and EndpointPort are the HostedCluster's status.controlPlaneEndpoint.
	EndpointHost string `json:"endpointHost,omitempty"`
	EndpointPort int64  `json:"endpointPort,omitempty"`
	// ControlPlaneVersions and Versions are the HostedCluster's histories, newest first.
	ControlPlaneVersions []Release `json:"controlPlaneVersions,omitempty"`
	Versions             []Release `json:"versions,omitempty"`
	// Kubeconfig is the name of the administrator's kubeconfig secret beside the HostedCluster.
	Kubeconfig string `json:"kubeconfig,omitempty"`

	// Replicas, and the replicas asked for as read back, of a NodePool.
	Replicas     int64  `json:"replicas,omitempty"`
	SpecReplicas *int64 `json:"specReplicas,omitempty"`
	// Version of all nodes of a NodePool.
	Version string `json:"version,omitempty"`
	// Image is the release image as read back from the main object.
	Image string `json:"image,omitempty"`

	// NodeVersions are the releases that a NodePool's nodes run.
	NodeVersions []NodeVersion `json:"nodeVersions,omitempty"`

	// Generation is the main object's, ActedOn the one that its operator says it has acted on; ConfigurationGeneration is that
	// of which ValidControlPlaneConfiguration speaks.
	Generation              int64 `json:"generation,omitempty"`
	ActedOn                 int64 `json:"actedOn,omitempty"`
	ConfigurationGeneration int64 `json:"configurationGeneration,omitempty"`
	// EncryptionKey is the version of the key that all of etcd's data is encrypted with, as a HostedCluster reports it.
	EncryptionKey string `json:"encryptionKey,omitempty"`
	// OIDCClients are the components that sign users in with an external issuer, as a HostedCluster reports them.
	OIDCClients []OIDCClient `json:"oidcClients,omitempty"`

	// Certificate is what a certificate signing request was answered with, and ServingCA what the API server's certificate is
	// to be judged by; both PEM.
	Certificate string `json:"certificate,omitempty"`
	ServingCA   string `json:"servingCA,omitempty"`

	// Components are those of a control plane that exist and report, by name.
	Components map[string]Component `json:"components,omitempty"`

	// Uses of break-glass credentials at the hosted API server, as a HostedCluster reports them; the latest first.
	Uses []credentialuse.Use `json:"uses,omitempty"`

	// Finalizers of the main object.
	Finalizers []string `json:"finalizers,omitempty"`
}

// Condition gives a condition of the main object; the zero one when it is not known.
func (o *Observed) Condition(name string) Condition { return o.Conditions[name] }

// ActedUpon says whether the main object's operator has acted on the object as it was read back. An operator that does
// not say so is taken at its conditions' word.
func (o *Observed) ActedUpon() bool {
	return o.ActedOn >= o.Generation || o.ActedOn == 0 && o.Generation == 0
}

// DigestAnnotation carries the digest of the rendering on a work's main object. One server-side apply sets it together
// with every other field we own, so reading it back proves that all of them were accepted.
const DigestAnnotation = "clusterservice.hcpmesh.io/digest"

const (
	conditionPrefix = "condition-"
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
	nameConfigured  = "configurationGeneration"
	nameActedOn     = "actedOn"
	nameEncryption  = "encryptionKey"
	nameNodes       = "nodeVersions"
	nameClients     = "oidcClients"
	nameCertificate = "certificate"
	nameServingCA   = "servingCA"
	nameUses        = "credentialUses"
	nameFinalizers  = "finalizers"
)

// The conditions that are asked for.
const (
	Available       = "Available"
	Progressing     = "Progressing"
	Degraded        = "Degraded"
	Ready           = "Ready"
	AllMachines     = "AllMachinesReady"
	AllNodes        = "AllNodesHealthy"
	UpdatingVersion = "UpdatingVersion"
	UpdatingConfig  = "UpdatingConfig"
	// Upgradeable is a cluster's own word on whether it is ready for another minor version.
	Upgradeable = "ClusterVersionUpgradeable"

	UpdatingTemplate   = "UpdatingPlatformMachineTemplate"
	AutoscalingEnabled = "AutoscalingEnabled"
	AutorepairEnabled  = "AutorepairEnabled"
	VersionSkew        = "SupportedVersionSkew"
	ValidReleaseImage  = "ValidReleaseImage"

	// ReconciliationSucceeded is the operator's word on a HostedCluster as a whole.
	ReconciliationSucceeded = "ReconciliationSucceeded"
	// ValidKMS says whether the customer's key can be used, DataEncrypted whether all of etcd's data is encrypted with it. The
	// latter is of newer releases of HyperShift.
	ValidKMS      = "ValidAzureKMSConfig"
	DataEncrypted = "EtcdDataEncryptionUpToDate"

	// ValidConfiguration is the operator's word on a HostedCluster's configuration, ValidControlPlaneConfiguration the
	// control plane's.
	ValidConfiguration             = "ValidConfiguration"
	ValidControlPlaneConfiguration = "ValidHostedControlPlaneConfiguration"

	// CertificateDenied and CertificateFailed are of certificate signing requests.
	CertificateDenied = "Denied"
	CertificateFailed = "Failed"

	SignerClassValid            = "SignerClassValid"
	PreviousCertificatesRevoked = "PreviousCertificatesRevoked"
)

// RevocationConditions are those of a certificate revocation request, in the order in which they become True.
var RevocationConditions = []string{SignerClassValid, "RootCertificatesRegenerated", "NewCertificatesTrusted", "LeafCertificatesRegenerated", PreviousCertificatesRevoked}

var (
	hostedClusterConditions = []string{Available, Progressing, Degraded, ValidReleaseImage, ReconciliationSucceeded, ValidConfiguration, ValidControlPlaneConfiguration,
		ValidKMS, DataEncrypted, Upgradeable}
	nodePoolConditions = []string{Ready, AllMachines, AllNodes, UpdatingVersion, UpdatingConfig, UpdatingTemplate, AutoscalingEnabled, AutorepairEnabled,
		VersionSkew, ValidReleaseImage}
)

// HostedClusterRules asks for what the state machine of a cluster needs, and nothing else: a status update costs every
// process on the way up.
func HostedClusterRules() []workv1.FeedbackRule {
	return rules(hostedClusterConditions, []workv1.JsonPath{
		{Name: nameDigest, Path: digestPath()},
		{Name: nameHost, Path: ".status.controlPlaneEndpoint.host"},
		{Name: namePort, Path: ".status.controlPlaneEndpoint.port"},
		{Name: nameCPVersions, Path: ".status.controlPlaneVersion.history"},
		{Name: nameVersions, Path: ".status.version.history"},
		{Name: nameKubeconfig, Path: ".status.kubeconfig.name"},
		{Name: nameImage, Path: ".spec.release.image"},
		{Name: nameGeneration, Path: ".metadata.generation"},
		{Name: nameConfigured, Path: observedGeneration(ValidControlPlaneConfiguration)},
		{Name: nameActedOn, Path: observedGeneration(ReconciliationSucceeded)},
		{Name: nameEncryption, Path: ".status.secretEncryption.activeKey.azure.keyVersion"},
		{Name: nameClients, Path: ".status.configuration.authentication.oidcClients"},
		{Name: nameUses, Path: annotationPath(credentialuse.Annotation)},
		{Name: nameFinalizers, Path: finalizersPath},
	})
}

// CertificateRequestRules asks for the answer to a certificate signing request.
func CertificateRequestRules() []workv1.FeedbackRule {
	return rules([]string{"Approved", CertificateDenied, CertificateFailed}, []workv1.JsonPath{{Name: nameCertificate, Path: ".status.certificate"}})
}

// ServingCARules asks for one key of a Secret that holds certificates, and for nothing else of it.
func ServingCARules(key string) []workv1.FeedbackRule {
	return rules(nil, []workv1.JsonPath{{Name: nameServingCA, Path: ".data." + strings.ReplaceAll(key, ".", `\.`)}})
}

// RevocationRules asks how far a certificate revocation request has come.
func RevocationRules() []workv1.FeedbackRule { return rules(RevocationConditions, nil) }

// NodePoolRules asks for what the state machine of a node pool needs.
func NodePoolRules() []workv1.FeedbackRule {
	return rules(nodePoolConditions, []workv1.JsonPath{
		{Name: nameDigest, Path: digestPath()},
		{Name: nameReplicas, Path: ".status.replicas"},
		{Name: nameSpecReps, Path: ".spec.replicas"},
		{Name: nameVersion, Path: ".status.version"},
		{Name: nameImage, Path: ".spec.release.image"},
		{Name: nameGeneration, Path: ".metadata.generation"},
		// Written last of what a pass of the operator writes.
		{Name: nameActedOn, Path: observedGeneration(UpdatingVersion)},
		{Name: nameNodes, Path: ".status.nodesInfo.nodeVersions"},
		{Name: nameFinalizers, Path: finalizersPath},
	})
}

func observedGeneration(condition string) string {
	return fmt.Sprintf(`.status.conditions[?(@.type=="%s")].observedGeneration`, condition)
}

func digestPath() string { return annotationPath(DigestAnnotation) }

func annotationPath(name string) string {
	return ".metadata.annotations." + strings.ReplaceAll(name, ".", `\.`)
}

func rules(conditions []string, paths []workv1.JsonPath) []workv1.FeedbackRule {
	for _, condition := range conditions {
		for _, field := range []string{"status", "reason", "message"} {
			paths = append(paths, workv1.JsonPath{
				Name: conditionPrefix + condition + "-" + field,
				Path: fmt.Sprintf(`.status.conditions[?(@.type=="%s")].%s`, condition, field),
			})
		}
	}
	return []workv1.FeedbackRule{{Type: workv1.JSONPathsType, JsonPaths: paths}}
}

// Status is the body of a status event of a manifest bundle.
type Status struct {
	Conditions     []metav1.Condition         `json:"conditions"`
	ResourceStatus []workv1.ManifestCondition `json:"resourceStatus,omitempty"`
}

// Decode reads the body of a status event. The main object of a work is the one with feedback values; components of a control
// plane are told apart by their names.
func Decode(body []byte) (*Observed, error) {
	var status Status
	if err := json.Unmarshal(body, &status); err != nil {
		return nil, fmt.Errorf("reading a manifest bundle's status: %w", err)
	}
	return FromStatus(&status), nil
}

// FromStatus reads a decoded status.
func FromStatus(status *Status) *Observed {
	observed := &Observed{}
	for _, c := range status.Conditions {
		switch c.Type {
		case workv1.WorkApplied:
			observed.Applied = Condition{Status: string(c.Status), Reason: c.Reason, Message: c.Message}
		case "Deleted":
			observed.Deleted = c.Status == metav1.ConditionTrue
		}
	}
	for i := range status.ResourceStatus {
		observed.readManifest(&status.ResourceStatus[i])
	}
	return observed
}

func (o *Observed) readManifest(manifest *workv1.ManifestCondition) {
	for _, c := range manifest.Conditions {
		// The manifest's own message says which object was refused and why; the work's only counts.
		if c.Type == workv1.ManifestApplied && c.Status == metav1.ConditionFalse && o.Applied.Status == string(metav1.ConditionFalse) {
			m := manifest.ResourceMeta
			o.Applied.Message = clip(fmt.Sprintf("%s %s: %s", m.Kind, m.Name, c.Message))
		}
	}
	if manifest.ResourceMeta.Kind == componentKind {
		o.readComponent(manifest)
		return
	}
	for i := range manifest.StatusFeedbacks.Values {
		o.readValue(&manifest.StatusFeedbacks.Values[i])
	}
}

func (o *Observed) readValue(v *workv1.FeedbackValue) {
	switch v.Name {
	case nameDigest:
		o.Digest = text(v)
	case nameHost:
		o.EndpointHost = text(v)
	case namePort:
		o.EndpointPort = integer(v)
	case nameCPVersions:
		o.ControlPlaneVersions = list[Release](v, maxHistory)
	case nameVersions:
		o.Versions = list[Release](v, maxHistory)
	case nameKubeconfig:
		o.Kubeconfig = text(v)
	case nameReplicas:
		o.Replicas = integer(v)
	case nameSpecReps:
		o.SpecReplicas = v.Value.Integer
	case nameVersion:
		o.Version = text(v)
	case nameImage:
		o.Image = text(v)
	case nameGeneration:
		o.Generation = integer(v)
	case nameConfigured:
		o.ConfigurationGeneration = integer(v)
	case nameActedOn:
		o.ActedOn = integer(v)
	case nameEncryption:
		o.EncryptionKey = clip(text(v))
	case nameNodes:
		o.NodeVersions = list[NodeVersion](v, maxHistory)
	case nameClients:
		o.OIDCClients = oidcClients(v)
	case nameCertificate:
		o.Certificate = certificates(v)
	case nameServingCA:
		o.ServingCA = certificates(v)
	case nameUses:
		o.Uses = credentialuse.Decode(text(v)).Uses()
	case nameFinalizers:
		o.Finalizers = finalizers(v)
	default:
		o.readCondition(v)
	}
}

func (o *Observed) readCondition(v *workv1.FeedbackValue) {
	rest, found := strings.CutPrefix(v.Name, conditionPrefix)
	if !found {
		return
	}
	name, field, found := strings.Cut(rest, "-")
	if !found {
		return
	}
	if o.Conditions == nil {
		o.Conditions = map[string]Condition{}
	}
	c := o.Conditions[name]
	switch field {
	case "status":
		c.Status = text(v)
	case "reason":
		c.Reason = text(v)
	case "message":
		c.Message = clip(text(v))
	default:
		return
	}
	o.Conditions[name] = c
}

func text(v *workv1.FeedbackValue) string {
	if v.Value.String == nil {
		return ""
	}
	return *v.Value.String
}

func integer(v *workv1.FeedbackValue) int64 {
	if v.Value.Integer == nil {
		return 0
	}
	return *v.Value.Integer
}

// list reads a list, or an object where an agent gave its only entry. Of a longer one the first entries are kept.
func list[T any](v *workv1.FeedbackValue, most int) []T {
	if v.Value.JsonRaw == nil {
		return nil
	}
	raw := []byte(*v.Value.JsonRaw)
	var entries []T
	if json.Unmarshal(raw, &entries) == nil {
		return entries[:min(len(entries), most)]
	}
	var one T
	if json.Unmarshal(raw, &one) == nil {
		return []T{one}
	}
	return nil
}

const (
	// maxCertificates bounds a bundle of certificates that is stored and shown.
	maxCertificates = 64 << 10
	// maxHistory is how many entries of a version history are kept: an upgrade in flight needs two or three.
	maxHistory = 10
	// maxMessage bounds a message that is stored and shown.
	maxMessage = 1024
)

func clip(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= maxMessage {
		return s
	}
	return strings.ToValidUTF8(s[:maxMessage], "")
}
