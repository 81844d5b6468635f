// Package feedback reads what a management cluster reports about one work: the status of a Maestro resource bundle, as the
// work agent wrote it. It holds both the JSON paths that tell the agent what to report (the functions …Rules) and the
// decoding of the reported values (Decode). All decoded values come from outside: a value that is missing, malformed or of
// another type is treated as absent, and every stored value is bounded.
package feedback

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	workv1 "open-cluster-management.io/api/work/v1"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
)

// Condition is one condition of an observed object.
type Condition struct {
	Status  string `json:"status,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Since is the time of the last change of Status, by the clock of the management cluster in seconds. Only Observed.Applied and conditions
	// with an AwaitedStatus have it.
	Since time.Time `json:"since,omitzero"`
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

// Observed is the last reported state of a work on its management cluster. It is stored as JSON. The main object of a work
// is the one whose values the agent reports, for example the HostedCluster.
type Observed struct {
	// Applied is the agent's condition on whether all manifests are applied.
	Applied Condition `json:"applied,omitzero"`
	// Refusal is the permanent refusal of a manifest; nil if a retry can succeed, and for agents that do not report it.
	Refusal *Refusal `json:"refusal,omitempty"`
	// Deleted is true when the management cluster has none of the manifests any more.
	Deleted bool `json:"deleted,omitempty"`
	// UID is the identity of the main object.
	UID string `json:"uid,omitempty"`
	// Missing is true if the main object does not exist. Its values are then absent.
	Missing bool `json:"missing,omitempty"`
	// Namespace is the namespace of the control plane of a HostedCluster.
	Namespace Namespace `json:"namespace,omitzero"`
	// Removals are the last removals of objects of the work by other clients, at most one per object.
	Removals []Removal `json:"removals,omitempty"`
	// Digest is the digest annotation of the main object: it identifies the rendering that the object carries.
	Digest string `json:"digest,omitempty"`

	// Conditions are the main object's conditions by type, as far as the state machines read them.
	Conditions map[string]Condition `json:"conditions,omitempty"`
	// EndpointHost and EndpointPort are the HostedCluster's status.controlPlaneEndpoint.
	EndpointHost string `json:"endpointHost,omitempty"`
	EndpointPort int64  `json:"endpointPort,omitempty"`
	// ControlPlaneVersions and Versions are the HostedCluster's histories, newest first.
	ControlPlaneVersions []Release `json:"controlPlaneVersions,omitempty"`
	Versions             []Release `json:"versions,omitempty"`
	// Kubeconfig is the name of the Secret beside the HostedCluster with the administrator's kubeconfig.
	Kubeconfig string `json:"kubeconfig,omitempty"`

	// Replicas is a NodePool's status.replicas, and SpecReplicas its spec.replicas.
	Replicas     int64  `json:"replicas,omitempty"`
	SpecReplicas *int64 `json:"specReplicas,omitempty"`
	// Version is the release that all nodes of a NodePool run.
	Version string `json:"version,omitempty"`
	// Image is the release image in the main object's spec.
	Image string `json:"image,omitempty"`

	// NodeVersions are the releases that the nodes of a NodePool run.
	NodeVersions []NodeVersion `json:"nodeVersions,omitempty"`

	// Generation is the main object's generation, and ActedOn the generation that its operator has reconciled.
	Generation int64 `json:"generation,omitempty"`
	ActedOn    int64 `json:"actedOn,omitempty"`
	// ConfigurationGeneration is the generation that the condition ValidHostedControlPlaneConfiguration is about.
	ConfigurationGeneration int64 `json:"configurationGeneration,omitempty"`
	// EncryptionKey is the version of the key with which all of etcd's data is encrypted, as a HostedCluster reports it.
	EncryptionKey string `json:"encryptionKey,omitempty"`
	// OIDCClients are the components of a HostedCluster that use the external issuer.
	OIDCClients []OIDCClient `json:"oidcClients,omitempty"`

	// Certificate is the certificate that was issued for a certificate signing request. ServingCA holds the certificates that
	// verify the API server. Both are PEM.
	Certificate string `json:"certificate,omitempty"`
	ServingCA   string `json:"servingCA,omitempty"`

	// Components are the reported components of a control plane, by name.
	Components map[string]Component `json:"components,omitempty"`

	// Uses are the uses of break-glass credentials at the hosted API server, latest first.
	Uses []hostedreport.CredentialUse `json:"uses,omitempty"`
	// EgressFailures are the connections that the egress proxy did not make for the control plane, latest first.
	EgressFailures []hostedreport.EgressFailure `json:"egressFailures,omitempty"`
	// Inside is what the prober of the management cluster sees of the API server; nil if it has not reported it.
	Inside *hostedreport.InsideReport `json:"inside,omitempty"`
	// Logs states whether the logs that the customer has selected arrive; nil if the customer has selected none.
	Logs *hostedreport.LogReport `json:"logs,omitempty"`

	// ForeignFields are the fields of the main object's spec that neither a manifest nor HyperShift sets. Only hcpmesh's agent reports them.
	ForeignFields []maestroapi.ForeignField `json:"foreignFields,omitempty"`

	// Finalizers are those of the main object.
	Finalizers []string `json:"finalizers,omitempty"`
}

// Condition returns a condition of the main object. It returns the zero Condition when none was reported.
func (o *Observed) Condition(name string) Condition { return o.Conditions[name] }

// ActedUpon reports whether the main object's operator has reconciled the object in the state that was read back. An
// operator that reports no generation counts as up to date when the object's generation is unknown too. HyperShift reports
// the generation of a paused object too, but applies only the pause.
func (o *Observed) ActedUpon() bool {
	return !o.Paused() && (o.ActedOn >= o.Generation || o.ActedOn == 0 && o.Generation == 0)
}

// Paused reports whether HyperShift does not reconcile the main object because of spec.pausedUntil.
func (o *Observed) Paused() bool { return o.Condition(ReconciliationActive).Status == "False" }

// Status is the body of a status event of a manifest bundle.
type Status struct {
	Conditions     []metav1.Condition         `json:"conditions"`
	ResourceStatus []workv1.ManifestCondition `json:"resourceStatus,omitempty"`
}

// Decode reads the body of a status event.
func Decode(body []byte) (*Observed, error) {
	var status Status
	if err := json.Unmarshal(body, &status); err != nil {
		return nil, fmt.Errorf("read the status of a manifest bundle: %w", err)
	}
	return FromStatus(&status), nil
}

// FromStatus reads a decoded status. Components of a control plane are distinguished by their names, and the namespace of a
// control plane by its kind; all other values belong to the main object.
func FromStatus(status *Status) *Observed {
	observed := &Observed{}
	for _, c := range status.Conditions {
		switch c.Type {
		case workv1.WorkApplied:
			observed.Applied = Condition{Status: string(c.Status), Reason: c.Reason, Message: c.Message, Since: c.LastTransitionTime.UTC()}
		case "Deleted":
			observed.Deleted = c.Status == metav1.ConditionTrue
		}
	}
	ofHostedCluster := hasHostedCluster(status.ResourceStatus)
	for i := range status.ResourceStatus {
		observed.readManifest(&status.ResourceStatus[i], ofHostedCluster)
	}
	return observed
}

// readManifest reads the status of one manifest. ofHostedCluster states whether the work has a HostedCluster.
func (o *Observed) readManifest(manifest *workv1.ManifestCondition, ofHostedCluster bool) {
	for _, c := range manifest.Conditions {
		// The manifest's message names the refused object and the reason. The message of the work only has counts.
		if c.Type == workv1.ManifestApplied && c.Status == metav1.ConditionFalse && o.Applied.Status == string(metav1.ConditionFalse) {
			m := manifest.ResourceMeta
			o.Applied.Message = clip(fmt.Sprintf("%s %s: %s", m.Kind, m.Name, c.Message))
			o.readRefusal(manifest, c.ObservedGeneration)
		}
	}
	switch {
	case manifest.ResourceMeta.Kind == componentKind:
		o.readComponent(manifest)
		return
	case manifest.ResourceMeta.Kind == kindNamespace && ofHostedCluster:
		o.readNamespace(manifest)
		return
	}
	o.readRemoval(manifest)
	if mainKinds[manifest.ResourceMeta.Kind] && isMissing(manifest) {
		o.Missing = true
		return
	}
	for i := range manifest.StatusFeedbacks.Values {
		o.readValue(&manifest.StatusFeedbacks.Values[i])
	}
}

func (o *Observed) readValue(v *workv1.FeedbackValue) {
	switch v.Name {
	case nameConditions:
		o.readConditions(v)
	case nameUID:
		o.UID = clip(text(v))
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
		o.Uses = hostedreport.DecodeCredentials(text(v)).Uses()
	case nameEgress:
		o.EgressFailures = hostedreport.DecodeEgress(text(v)).Failures()
	case nameInside:
		o.Inside = hostedreport.DecodeInside(text(v))
	case nameLogs:
		o.Logs = hostedreport.DecodeLogs(text(v))
	case nameForeign:
		o.ForeignFields = readForeignFields(text(v))
	case nameFinalizers:
		o.Finalizers = finalizers(v)
	}
}

// condition is an entry of status.conditions.
type condition struct {
	Type               string `json:"type"`
	Status             string `json:"status"`
	Reason             string `json:"reason"`
	Message            string `json:"message"`
	ObservedGeneration int64  `json:"observedGeneration"`
	LastTransitionTime string `json:"lastTransitionTime"`
}

// readConditions stores the conditions in storedConditions. Of several conditions of one type the first counts.
func (o *Observed) readConditions(v *workv1.FeedbackValue) {
	for _, c := range list[condition](v, maxConditions) {
		if _, seen := o.Conditions[c.Type]; seen || !storedConditions[c.Type] {
			continue
		}
		if o.Conditions == nil {
			o.Conditions = map[string]Condition{}
		}
		if namesOperators := c.Type == VersionSucceeding && c.Status == "False"; slices.Contains(PartConditions, c.Type) && !namesOperators {
			c.Message = ""
		}
		read := Condition{Status: clip(c.Status), Reason: clip(c.Reason), Message: clip(c.Message)}
		if AwaitedStatus(c.Type) != "" {
			read.Since = moment(c.LastTransitionTime)
		}
		o.Conditions[c.Type] = read
		switch c.Type {
		case ReconciliationSucceeded, UpdatingVersion:
			// HyperShift writes these last when it reconciles a HostedCluster or a NodePool.
			o.ActedOn = c.ObservedGeneration
		case ValidControlPlaneConfiguration:
			o.ConfigurationGeneration = c.ObservedGeneration
		}
	}
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

// list reads the first entries of a list, at most limit. An agent may report the only entry of a list without the list.
// Entries of another type are left out.
func list[T any](v *workv1.FeedbackValue, limit int) []T {
	if v.Value.JsonRaw == nil {
		return nil
	}
	raw := json.RawMessage(*v.Value.JsonRaw)
	var entries []json.RawMessage
	if json.Unmarshal(raw, &entries) != nil {
		entries = []json.RawMessage{raw}
	}
	var read []T
	for _, entry := range entries[:min(len(entries), limit)] {
		var one T
		if json.Unmarshal(entry, &one) == nil {
			read = append(read, one)
		}
	}
	return read
}

const (
	// maxConditions is the number of conditions of one object that are read. HyperShift has fewer than 50 types.
	maxConditions = 256
	// maxCertificates is the maximum size of a bundle of certificates, in bytes of base64.
	maxCertificates = 64 << 10
	// maxHistory is the number of entries of a version history that are stored. An upgrade in progress needs two or three.
	maxHistory = 10
	// maxText is the maximum length of a stored text, in bytes.
	maxText = 1024
)

// clip makes a text valid UTF-8 of at most maxText bytes.
func clip(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText], "")
}
