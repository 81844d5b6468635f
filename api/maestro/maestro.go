// Package maestroapi holds the names of Maestro's wire contract: the CloudEvents that sources and agents exchange with the
// server, the MQTT topics, and what hcpmesh's server and agent add to the published protocol. Sources, the server, the agent
// and the emulators use these names. A test of maestro/pkg/event compares them with those of the Open Cluster Management SDK.
package maestroapi

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// DataType is the data type of events about manifest bundles.
const DataType = "io.open-cluster-management.works.v1alpha1.manifestbundles"

// Types of events.
const (
	TypeCreate               = DataType + ".spec.create_request"
	TypeUpdate               = DataType + ".spec.update_request"
	TypeDelete               = DataType + ".spec.delete_request"
	TypeSpecResync           = DataType + ".spec.resync_request"
	TypeSpecResyncResponse   = DataType + ".spec.resync_response"
	TypeStatusUpdate         = DataType + ".status.update_request"
	TypeStatusResync         = DataType + ".status.resync_request"
	TypeStatusResyncResponse = DataType + ".status.resync_response"
	TypeHeartbeat            = "io.open-cluster-management.cloudevents.heartbeat"
)

// Extension attributes of events.
const (
	ExtensionResourceID        = "resourceid"
	ExtensionResourceVersion   = "resourceversion"
	ExtensionClusterName       = "clustername"
	ExtensionOriginalSource    = "originalsource"
	ExtensionSequenceID        = "sequenceid"
	ExtensionStatusHash        = "statushash"
	ExtensionMetadata          = "metadata"
	ExtensionDeletionTimestamp = "deletiontimestamp"
	// ExtensionTraceParent is the W3C trace context of the request that a bundle is published for, as in the Distributed Tracing extension of
	// CloudEvents. The server stores it with the bundle and sends it to the agent with new work, not in a resync. Other servers ignore it.
	ExtensionTraceParent = "traceparent"
	// ExtensionLogTracing carries the log tracing keys of published clients from the source to the agent.
	ExtensionLogTracing = "logtracing"
)

// Extension attributes that hcpmesh's agent adds to a spec resync. Agents that do not send ExtensionResyncID get no
// response.
const (
	ExtensionResyncID = "resyncid"
	// ExtensionResyncPart counts from 1 to ExtensionResyncParts, for lists that do not fit into one message.
	ExtensionResyncPart  = "resyncpart"
	ExtensionResyncParts = "resyncparts"
)

// AttributePrefix precedes the name of an attribute in the gRPC protocol and in MQTT user properties.
const AttributePrefix = "ce-"

// gRPC headers that hcpmesh's server adds.
const (
	// HeaderResourceVersion is the response header with the version that a create or update resulted in.
	HeaderResourceVersion = "maestro-resource-version"
	// HeaderOmitManifests is the request header that leaves the manifests out of the events of a subscription if it is
	// "true".
	HeaderOmitManifests = "maestro-omit-manifests"
)

// Annotations of a deletion that hcpmesh's agent acts on. Both are lists separated by commas; other servers and agents
// ignore them.
const (
	// AnnotationReleaseFinalizers names the finalizers that the agent removes from the objects of the deleted work,
	// because no controller removes them any more.
	AnnotationReleaseFinalizers = "maestro.hcpmesh.io/release-finalizers"
	// AnnotationReleaseNamespaces names the namespaces in which the agent removes them from all objects.
	AnnotationReleaseNamespaces = "maestro.hcpmesh.io/release-namespaces"
)

// ErrorDomain is the domain of the google.rpc.ErrorInfo in rejected requests.
const ErrorDomain = "maestro.hcpmesh"

// Reason is the reason of a google.rpc.ErrorInfo: why a request was rejected.
type Reason string

const (
	ReasonMalformed       Reason = "MALFORMED"
	ReasonTooLarge        Reason = "TOO_LARGE"
	ReasonUnknownConsumer Reason = "UNKNOWN_CONSUMER"
	ReasonNotFound        Reason = "NOT_FOUND"
	ReasonAlreadyExists   Reason = "ALREADY_EXISTS"
	ReasonVersionConflict Reason = "VERSION_CONFLICT"
	ReasonBeingDeleted    Reason = "BEING_DELETED"
	ReasonForeignSource   Reason = "FOREIGN_SOURCE"
	ReasonConsumerInUse   Reason = "CONSUMER_IN_USE"
)

// Condition types of a bundle's status, besides those of ManifestWork.
const (
	// ConditionDeleted is True when the agent has deleted everything that the bundle created.
	ConditionDeleted = "Deleted"
	// ConditionDelivered is False, with a reason below, if the server cannot send the newest version.
	ConditionDelivered = "Delivered"
)

// Heartbeat is the data of the heartbeats of hcpmesh's server to subscribers. Other servers send heartbeats without data.
type Heartbeat struct {
	// Agents contains the time of the last heartbeat of each agent, by consumer, on the clock of the server's database. An agent
	// that has never sent one is missing.
	Agents map[string]time.Time `json:"agents"`
}

// Condition types that hcpmesh's agent adds to a manifest in the status of a bundle, after a client other than the agent has
// removed its object from the management cluster. Other servers and agents do not know them.
const (
	// ConditionRemoved is True from the first removal on. Its reason is one below, its transition time is the time of the last
	// removal, and its message is "UID " with the identity of the removed object.
	ConditionRemoved = "Removed"
	// ConditionAppliedAgain is False while the object is missing or being deleted, and True when it exists again. Its
	// transition time is then the creation of the new object.
	ConditionAppliedAgain = "AppliedAgain"
)

// Reasons of ConditionRemoved.
const (
	// RemovedBeingDeleted is the reason while the object still exists with a deletion timestamp.
	RemovedBeingDeleted = "BeingDeleted"
	RemovedDeleted      = "Deleted"
	// RemovedReplaced is the reason if the agent found an object with another identity, without having seen the removal.
	RemovedReplaced = "Replaced"
)

// AnnotationForeignFields is an annotation that hcpmesh's agent adds to an object that it read, before it evaluates the feedback rules of
// works. It is a JSON list of ForeignField, and absent if the object has none. The object on the management cluster does not have it.
const AnnotationForeignFields = "maestro.hcpmesh.io/foreign-fields"

// ForeignField is a field of the spec of an applied object that another field manager than the agent owns, and the agent does not.
type ForeignField struct {
	// Path is the path of the field, for example spec.autoscaling.maxNodesTotal.
	Path    string `json:"path"`
	Manager string `json:"manager"`
	// Value is the value of a short scalar; empty for all others.
	Value string `json:"value,omitempty"`
}

// PathPausedUntil is the field of a HostedCluster and a NodePool that stops HyperShift.
const PathPausedUntil = "spec.pausedUntil"

// maxForeignFields is the maximum number of foreign fields of one object that are reported and stored.
const maxForeignFields = 8

// hyperShiftManagers are the prefixes of the field managers of HyperShift, whose operators complete the spec.
var hyperShiftManagers = []string{"hypershift-operator", "control-plane-operator"}

// SelectForeignFields returns those of an object's foreign fields that are reported, at most 8. It leaves out fields of HyperShift's managers.
// PathPausedUntil is first, then the fields are in order of their paths and managers. The agent and Cluster Service, which also reads reports of
// agents of other releases, call it, so that no field hides PathPausedUntil.
func SelectForeignFields(fields []ForeignField) []ForeignField {
	fields = slices.DeleteFunc(fields, func(f ForeignField) bool {
		return slices.ContainsFunc(hyperShiftManagers, func(prefix string) bool { return strings.HasPrefix(f.Manager, prefix) })
	})
	slices.SortFunc(fields, func(a, b ForeignField) int {
		if paused := a.Path == PathPausedUntil; paused != (b.Path == PathPausedUntil) {
			if paused {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Manager, b.Manager))
	})
	return fields[:min(len(fields), maxForeignFields)]
}

// ConditionRefused is a condition type that hcpmesh's agent adds to a manifest that the API server of the management cluster refuses
// permanently: applying the same manifest again cannot succeed until a person changes the manifest or the management cluster. It is True,
// with a reason below, while the manifest's condition Applied is False for the same generation. RefusalMessage formats its message. Other
// servers and agents do not know it; their reasons of the condition Applied stay as published.
const ConditionRefused = "Refused"

// Reasons of ConditionRefused.
const (
	// RefusedInvalid: the object violates the schema or a rule of its kind.
	RefusedInvalid = "Invalid"
	// RefusedMalformed: the request cannot be read, for example because a field has another type or is unknown.
	RefusedMalformed = "Malformed"
	// RefusedByPolicy: a ValidatingAdmissionPolicy or an admission webhook denies the object.
	RefusedByPolicy = "DeniedByPolicy"
	// RefusedUnknownKind: the API server does not serve the kind.
	RefusedUnknownKind = "UnknownKind"
	// RefusedTooLarge: the object exceeds the size that the API server accepts.
	RefusedTooLarge = "TooLarge"
)

// MaxRefusedFields is the maximum number of refused fields in the message of ConditionRefused.
const MaxRefusedFields = 8

// RefusalMessage returns the message of ConditionRefused. Its first line has the paths of the refused fields, separated by spaces. The rest
// is the API server's message.
func RefusalMessage(fields []string, text string) string {
	return strings.Join(fields, " ") + "\n" + text
}

// ParseRefusal returns the parts of a message that RefusalMessage has formatted.
func ParseRefusal(message string) (fields []string, text string) {
	line, text, _ := strings.Cut(message, "\n")
	return strings.Fields(line), text
}

// Reasons of ConditionDelivered.
const (
	DeliveredTooLarge       = "TooLarge"
	DeliveredNotEncodable   = "NotEncodable"
	DeliveredNotDeliverable = "NotDeliverable"
)

// RESTPath is the path of the REST API.
const RESTPath = "/api/maestro/v1"

// ServerName is the DNS name in the server's client certificate at the MQTT broker. An agent's is the name of its consumer.
const ServerName = "maestro-server"

// Channels are the last level of a topic.
const (
	// ChannelSourceEvents is for events from the server to an agent.
	ChannelSourceEvents = "sourceevents"
	// ChannelAgentEvents is for events from an agent to the server.
	ChannelAgentEvents = "agentevents"
)

// SourceEventsTopic returns the topic on which the server with the given source ID publishes to the agent of a consumer.
func SourceEventsTopic(source, consumer string) string {
	return topic(source, consumer, ChannelSourceEvents)
}

// AgentEventsTopic returns the topic on which the agent of a consumer publishes to the server. With "+" as the consumer it
// is the filter for all agents.
func AgentEventsTopic(source, consumer string) string {
	return topic(source, consumer, ChannelAgentEvents)
}

func topic(source, consumer, channel string) string {
	return "sources/" + source + "/consumers/" + consumer + "/" + channel
}

// ParseTopic returns the parts of a topic or of a filter with a wildcard for one level. ok is false if name has another form.
func ParseTopic(name string) (source, consumer, channel string, ok bool) {
	levels := strings.Split(name, "/")
	if len(levels) != 5 || levels[0] != "sources" || levels[2] != "consumers" || levels[1] == "" || levels[3] == "" {
		return "", "", "", false
	}
	source, consumer, channel = levels[1], levels[3], levels[4]
	return source, consumer, channel, channel == ChannelSourceEvents || channel == ChannelAgentEvents
}
