// Package clusterstatus has the names with which Cluster Service reports the status of a cluster, for the services that interpret them: conditions,
// layers of progress with their states, and drifts of works.
package clusterstatus

import (
	"regexp"
	"strings"
)

// Applied is False with the reason ApplyRefused if the API server of the management cluster permanently refuses the desired state: a person
// must change the desired state or the management cluster. It stays so after a refused update was taken back, until the next update.
// RefusedMessage formats its message. Node pools and external authentications have the condition too.
const (
	Applied      = "Applied"
	ApplyRefused = "ApplyRefused"
)

// RefusedMessage returns the message of ApplyRefused. Properties are the ARM properties of the resource that the API server refuses; there
// are none if no property of the resource is the cause.
func RefusedMessage(properties []string, text string) string {
	if len(properties) == 0 {
		return text
	}
	return strings.Join(properties, ", ") + ": " + text
}

// refusedProperty matches an ARM property in a message of ApplyRefused.
var refusedProperty = regexp.MustCompile(`^(name|location|properties(\.[a-zA-Z]+|\[[a-z0-9-]+\])*)$`)

// RefusedProperties returns the properties in a message of ApplyRefused.
func RefusedProperties(message string) []string {
	list, _, found := strings.Cut(message, ": ")
	if !found {
		return nil
	}
	properties := strings.Split(list, ", ")
	for _, p := range properties {
		if !refusedProperty.MatchString(p) {
			return nil
		}
	}
	return properties
}

// RefusedText returns a message of ApplyRefused without its properties.
func RefusedText(message string) string {
	if RefusedProperties(message) == nil {
		return message
	}
	_, text, _ := strings.Cut(message, ": ")
	return text
}

// IdentitiesRead is False with the reason IdentityNotFound if user-assigned identities of a cluster do not exist. Its message
// then contains the ARM property path of each. Otherwise the cluster does not have the condition.
const (
	IdentitiesRead   = "IdentitiesRead"
	IdentityNotFound = "IdentityNotFound"
)

// EncryptionKeyUsable is False with the reason EncryptionKeyInvalid if HyperShift cannot encrypt with the customer's key of
// etcd. Otherwise the cluster does not have the condition.
const (
	EncryptionKeyUsable  = "EncryptionKeyUsable"
	EncryptionKeyInvalid = "EncryptionKeyInvalid"
)

// IdentitiesFederated is False with the reason FederatedCredentialLimit if data plane identities of a cluster already have
// MaxFederatedCredentials federated credentials, the limit of Azure, so that the cluster cannot have its own. Its message then
// contains the ARM property path of each identity. Otherwise the cluster does not have the condition.
const (
	IdentitiesFederated      = "IdentitiesFederated"
	FederatedCredentialLimit = "FederatedCredentialLimit"
	MaxFederatedCredentials  = 20
)

// CredentialsIssued is False with the reason CredentialRefused if Azure issues no usable credential for identities of a cluster's control plane.
// Its message then contains the ARM property path of each. Otherwise the cluster does not have the condition.
const (
	CredentialsIssued = "CredentialsIssued"
	CredentialRefused = "CredentialRefused"
)

// InternalRangesAllowed is False with the reason TooManyRanges if ranges of the region cannot reach the API of a cluster, because HyperShift does
// not allow as many ranges together with those of the customer. Otherwise the cluster does not have the condition.
const (
	InternalRangesAllowed = "InternalRangesAllowed"
	TooManyRanges         = "TooManyRanges"
)

// LogsDelivered states whether the logs that the customer has selected with diagnostic settings arrive at their destinations. It is True with the
// reason AsExpected, or False: with LogSettingUnusable if a setting is the cause, with LogDestinationUnavailable if a storage account of the
// customer is, and with LogDeliveryDelayed if the service or Azure is. Its message names each setting. A cluster without such a setting does not
// have the condition.
const (
	LogsDelivered             = "LogsDelivered"
	LogSettingUnusable        = "LogSettingUnusable"
	LogDestinationUnavailable = "LogDestinationUnavailable"
	LogDeliveryDelayed        = "LogDeliveryDelayed"
)

// RequirementsValid states whether the virtual machines of a node pool can be created in the customer's subscription. It is True with the reason
// RequirementsMet. It is False with VMSizeNotOffered or VMSizeRestricted if Azure does not offer the size in the region or the zone, or not to the
// subscription, and with QuotaExceeded if the quota of cores does not suffice. It is Unknown with RequirementsUnread if Azure Compute cannot be read.
// A message of False has the form of RefusedMessage. A node pool that was not checked yet does not have the condition.
const (
	RequirementsValid  = "RequirementsValid"
	RequirementsMet    = "Valid"
	VMSizeNotOffered   = "VMSizeNotOffered"
	VMSizeRestricted   = "VMSizeRestricted"
	QuotaExceeded      = "QuotaExceeded"
	RequirementsUnread = "RequirementsUnread"
)

// EtcdAvailable and APIServerAvailable are conditions of the HostedCluster: the parts of its control plane, as HyperShift sees them on
// the management cluster. They have no messages.
const (
	EtcdAvailable      = "EtcdAvailable"
	APIServerAvailable = "KubeAPIServerAvailable"
)

// DataPlaneConnectionAvailable and Degraded are conditions of the HostedCluster, too: whether the control plane reaches the nodes, and
// whether HyperShift or an operator of the cluster reports a failure. Only the second one has a message.
const (
	DataPlaneConnectionAvailable = "DataPlaneConnectionAvailable"
	Degraded                     = "Degraded"
)

// VersionSucceeding is a condition of the HostedCluster that is False if the cluster-version operator cannot apply a part of the release. Its
// message then names the cluster operators that fail.
const VersionSucceeding = "ClusterVersionSucceeding"

// AllMachinesReady and AllNodesHealthy are conditions of a NodePool: all its machines run, and all its nodes are ready.
const (
	AllMachinesReady = "AllMachinesReady"
	AllNodesHealthy  = "AllNodesHealthy"
)
