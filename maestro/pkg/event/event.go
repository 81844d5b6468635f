// Package event converts resources and statuses to CloudEvents and back. It implements the wire format of published Maestro:
// the event types, the extension attributes and the JSON bodies of
// io.open-cluster-management.works.v1alpha1.manifestbundles, as sources send them over gRPC and agents over MQTT. All input
// is untrusted, so decoding never panics and its errors name the wrong attribute.
package event

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2"
	cetypes "github.com/cloudevents/sdk-go/v2/types"
	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"open-cluster-management.io/sdk-go/pkg/cloudevents/clients/common"
	workpayload "open-cluster-management.io/sdk-go/pkg/cloudevents/clients/work/payload"
	"open-cluster-management.io/sdk-go/pkg/cloudevents/generic/payload"
	"open-cluster-management.io/sdk-go/pkg/cloudevents/generic/types"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/resource"
)

// Action is the request or report that an event carries.
type Action string

const (
	Create       Action = "create"
	Update       Action = "update"
	Delete       Action = "delete"
	StatusUpdate Action = "status"
	// SpecResync is the request of an agent for every resource that differs from those that it lists.
	SpecResync Action = "spec-resync"
	// StatusResync is a request for every status that differs from those that are listed.
	StatusResync Action = "status-resync"
)

// dataType is the only supported data type: manifest bundles.
var dataType = workpayload.ManifestBundleEventDataType

// ActionOf returns the action of an event.
func ActionOf(evt *cloudevents.Event) (Action, error) {
	t, err := types.ParseCloudEventsType(evt.Type())
	if err != nil {
		return "", resource.Errorf(maestroapi.ReasonMalformed, "type of the event: %v", err)
	}
	if t.CloudEventsDataType != dataType {
		return "", resource.Errorf(maestroapi.ReasonMalformed, "data type %s is not supported; the supported type is %s", t.CloudEventsDataType, dataType)
	}
	switch {
	case t.SubResource == types.SubResourceSpec && t.Action == types.CreateRequestAction:
		return Create, nil
	case t.SubResource == types.SubResourceSpec && t.Action == types.UpdateRequestAction:
		return Update, nil
	case t.SubResource == types.SubResourceSpec && t.Action == types.DeleteRequestAction:
		return Delete, nil
	case t.SubResource == types.SubResourceSpec && t.Action == types.ResyncRequestAction:
		return SpecResync, nil
	case t.SubResource == types.SubResourceStatus && t.Action == types.ResyncRequestAction:
		return StatusResync, nil
	case t.SubResource == types.SubResourceStatus && (t.Action == types.UpdateRequestAction || t.Action == types.ResyncResponseAction):
		return StatusUpdate, nil
	}
	return "", resource.Errorf(maestroapi.ReasonMalformed, "type %s of the event is not supported", evt.Type())
}

// DecodeSpec decodes a create, update or delete request of a source. Version 0 means the newest version. Only a deletion may
// omit the bundle.
func DecodeSpec(evt *cloudevents.Event, action Action) (*resource.Resource, error) {
	ext := extensions(evt)
	r := &resource.Resource{
		ID:       ext.text(types.ExtensionResourceID),
		Consumer: ext.text(types.ExtensionClusterName),
		Version:  ext.optionalInteger(types.ExtensionResourceVersion),
		Tracing:  ext.optionalText(maestroapi.ExtensionLogTracing),
		Source:   evt.Source(),
	}
	if trace := ext.optionalText(maestroapi.ExtensionTraceParent); len(trace) <= maxTraceParent {
		r.TraceParent = trace
	}
	if metadata := ext.optionalText(types.ExtensionWorkMeta); metadata != "" {
		r.Metadata = json.RawMessage(metadata)
		if err := wire.Unmarshal(r.Metadata, &metav1.ObjectMeta{}); err != nil {
			ext.fail("extension %s is not an ObjectMeta: %v", types.ExtensionWorkMeta, err)
		}
	}
	if evt.Source() == "" {
		ext.fail("the source is empty")
	}
	if r.Version < 0 {
		ext.fail("extension %s is negative", types.ExtensionResourceVersion)
	}
	if action != Delete {
		r.Spec = json.RawMessage(evt.Data())
		var bundle workpayload.ManifestBundle
		if err := wire.Unmarshal(r.Spec, &bundle); err != nil {
			ext.fail("the data is not a manifest bundle: %v", err)
		}
		if len(bundle.Manifests) == 0 && ext.err == nil {
			ext.fail("the manifest bundle contains no manifest")
		}
	}
	if ext.err != nil {
		return nil, ext.err
	}
	return r, nil
}

// maxTraceParent is the maximum length of a W3C trace context that is stored, in bytes. A valid one has 55 bytes.
const maxTraceParent = 64

// EncodeSpec returns the event with the newest version of a resource, or with its deletion, for its agent.
func EncodeSpec(r *resource.Resource, source string, action Action) (*cloudevents.Event, error) {
	request := map[Action]types.EventAction{
		Create: types.CreateRequestAction, Update: types.UpdateRequestAction, Delete: types.DeleteRequestAction,
	}[action]
	b := types.NewEventBuilder(source, types.CloudEventsType{
		CloudEventsDataType: dataType, SubResource: types.SubResourceSpec, Action: request,
	}).WithResourceID(r.ID).WithResourceVersion(r.Version).WithClusterName(r.Consumer)
	if action == Delete {
		b = b.WithDeletionTimestamp(r.DeletedAt)
	}
	evt := b.NewEvent()
	if r.Tracing != "" {
		evt.SetExtension(maestroapi.ExtensionLogTracing, r.Tracing)
	}
	if r.TraceParent != "" {
		evt.SetExtension(maestroapi.ExtensionTraceParent, r.TraceParent)
	}
	metadata, err := agentMetadata(r)
	if err != nil {
		return nil, err
	}
	evt.SetExtension(types.ExtensionWorkMeta, metadata)
	body := r.Spec
	if len(body) == 0 {
		// A tombstone has no bundle.
		body = json.RawMessage(`{"manifests":[]}`)
	}
	if err := evt.SetData(cloudevents.ApplicationJSON, []byte(body)); err != nil {
		return nil, fmt.Errorf("encoding the bundle of resource %s: %w", r.ID, err)
	}
	return &evt, nil
}

// agentMetadata returns the metadata for the agent. Its name is the ID of the resource, because names of ManifestWorks are
// unique only within a source.
func agentMetadata(r *resource.Resource) (string, error) {
	metadata := metav1.ObjectMeta{}
	if len(r.Metadata) > 0 {
		if err := json.Unmarshal(r.Metadata, &metadata); err != nil {
			return "", fmt.Errorf("metadata of resource %s: %w", r.ID, err)
		}
	}
	metadata.Name = r.ID
	metadata.ResourceVersion = ""
	metadata.Finalizers = nil
	out, err := json.Marshal(metadata)
	return string(out), err
}

// DecodeStatus decodes a report of an agent.
func DecodeStatus(evt *cloudevents.Event) (*resource.Status, error) {
	ext := extensions(evt)
	s := &resource.Status{
		ResourceID: ext.text(types.ExtensionResourceID),
		Consumer:   ext.text(types.ExtensionClusterName),
		Version:    ext.optionalInteger(types.ExtensionResourceVersion),
		Sequence:   ext.text(types.ExtensionStatusUpdateSequenceID),
		Hash:       ext.optionalText(types.ExtensionStatusHash),
		Agent:      evt.Source(),
		Body:       json.RawMessage(evt.Data()),
	}
	if _, err := strconv.ParseInt(s.Sequence, 10, 64); err != nil {
		ext.fail("extension %s is not an integer", types.ExtensionStatusUpdateSequenceID)
	}
	var body workpayload.ManifestBundleStatus
	if err := json.Unmarshal(s.Body, &body); err != nil {
		ext.fail("the data is not the status of a manifest bundle: %v", err)
	}
	s.Deleted = meta.IsStatusConditionTrue(body.Conditions, common.ResourceDeleted)
	if ext.err != nil {
		return nil, ext.err
	}
	return s, nil
}

// EncodeStatus returns the event with the newest status of a resource for its source. Like the published server's event it
// contains the bundle, so that a source without a store can rebuild the ManifestWork.
func EncodeStatus(r *resource.Resource) (*cloudevents.Event, error) {
	if r.Status == nil {
		return nil, errors.New("the resource has no status yet")
	}
	s := r.Status
	evt := types.NewEventBuilder(s.Agent, types.CloudEventsType{
		CloudEventsDataType: dataType, SubResource: types.SubResourceStatus, Action: types.UpdateRequestAction,
	}).WithResourceID(r.ID).WithResourceVersion(s.Version).WithStatusUpdateSequenceID(s.Sequence).
		WithClusterName(r.Consumer).WithOriginalSource(r.Source).NewEvent()
	evt.SetExtension(types.ExtensionStatusHash, s.Hash)
	if len(r.Metadata) > 0 {
		evt.SetExtension(types.ExtensionWorkMeta, string(r.Metadata))
	}
	if r.Tracing != "" {
		evt.SetExtension(maestroapi.ExtensionLogTracing, r.Tracing)
	}
	if !r.DeletedAt.IsZero() {
		evt.SetExtension(types.ExtensionDeletionTimestamp, r.DeletedAt)
	}

	body := map[string]json.RawMessage{}
	if err := json.Unmarshal(s.Body, &body); err != nil {
		return nil, fmt.Errorf("status of resource %s: %w", r.ID, err)
	}
	if body == nil { // the body of the agent is null
		body = map[string]json.RawMessage{}
	}
	if len(r.Spec) > 0 {
		body["manifestBundle"] = r.Spec
	}
	data, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("status of resource %s: %w", r.ID, err)
	}
	if err := evt.SetData(cloudevents.ApplicationJSON, data); err != nil {
		return nil, fmt.Errorf("encoding the status of resource %s: %w", r.ID, err)
	}
	return &evt, nil
}

// SpecResyncRequest is the list of an agent's works, or a part of it.
type SpecResyncRequest struct {
	Consumer string
	// ID identifies the resync. It is empty for published agents, whose lists have one part.
	ID string
	// Part is from 1 to Parts.
	Part, Parts int64
	// Held contains the version of each work by resource ID. Ignored are the malformed elements of the list.
	Held    map[string]int64
	Ignored wire.Ignored
}

// DecodeSpecResync decodes the list of an agent's works. A malformed element of the list hides no others.
func DecodeSpecResync(evt *cloudevents.Event) (*SpecResyncRequest, error) {
	ext := extensions(evt)
	r := &SpecResyncRequest{
		Consumer: ext.text(types.ExtensionClusterName), ID: ext.optionalText(maestroapi.ExtensionResyncID),
		Part: ext.optionalInteger(maestroapi.ExtensionResyncPart), Parts: ext.optionalInteger(maestroapi.ExtensionResyncParts), Held: map[string]int64{},
	}
	if r.Parts == 0 {
		r.Part, r.Parts = 1, 1
	}
	if r.Parts < 1 || r.Parts > maxParts || r.Part < 1 || r.Part > r.Parts || r.Parts > 1 && r.ID == "" {
		ext.fail("part %d of %d of resync %q is invalid", r.Part, r.Parts, r.ID)
	}
	if ext.err != nil {
		return nil, ext.err
	}
	var list struct { // of package payload, whose errors have the data, which may be long
		Versions []json.RawMessage `json:"resourceVersions"`
	}
	if err := json.Unmarshal(evt.Data(), &list); err != nil {
		return nil, resource.Errorf(maestroapi.ReasonMalformed, "data of the spec resync: %v", err)
	}
	wire.Elements("resourceVersions", "resourceID", slices.All(list.Versions), func(_ int, v payload.ResourceVersion) error {
		if err := checkListed(v.ResourceID); err != nil {
			return err
		}
		r.Held[v.ResourceID] = v.ResourceVersion
		return nil
	}, r.Ignored.Add)
	return r, nil
}

// DecodeStatusResync returns the status hashes of a status resync by resource ID. A list without elements requests all statuses: if malformed elements are
// all that it has, it returns an error. A malformed element hides no others.
func DecodeStatusResync(evt *cloudevents.Event) (hashes map[string]string, ignored wire.Ignored, err error) {
	var list struct {
		Hashes []json.RawMessage `json:"statusHashes"`
	}
	if err := json.Unmarshal(evt.Data(), &list); err != nil {
		return nil, ignored, resource.Errorf(maestroapi.ReasonMalformed, "data of the status resync: %v", err)
	}
	hashes = make(map[string]string, len(list.Hashes))
	wire.Elements("statusHashes", "resourceID", slices.All(list.Hashes), func(_ int, h payload.ResourceStatusHash) error {
		if err := checkListed(h.ResourceID, h.StatusHash); err != nil {
			return err
		}
		hashes[h.ResourceID] = h.StatusHash
		return nil
	}, ignored.Add)
	if len(hashes) == 0 && ignored.Count > 0 {
		return nil, ignored, resource.Errorf(maestroapi.ReasonMalformed, "data of the status resync: %v", ignored.Err())
	}
	return hashes, ignored, nil
}

// checkListed returns an error for an element without an ID, or with a zero byte, which PostgreSQL does not accept.
func checkListed(id string, others ...string) error {
	if id == "" || strings.Contains(id+strings.Join(others, ""), "\x00") {
		return errors.New("it has no resourceID, or a zero byte")
	}
	return nil
}

// EncodeStatusResync returns the event that requests from an agent the statuses with other hashes. It rejects an empty list,
// which would request all statuses.
func EncodeStatusResync(source, consumer string, hashes []payload.ResourceStatusHash) (*cloudevents.Event, error) {
	if len(hashes) == 0 {
		return nil, errors.New("a status resync needs at least one hash")
	}
	evt := types.NewEventBuilder(source, types.CloudEventsType{
		CloudEventsDataType: dataType, SubResource: types.SubResourceStatus, Action: types.ResyncRequestAction,
	}).WithClusterName(consumer).NewEvent()
	if err := evt.SetData(cloudevents.ApplicationJSON, payload.ResourceStatusHashList{Hashes: hashes}); err != nil {
		return nil, fmt.Errorf("encoding a status resync: %w", err)
	}
	return &evt, nil
}

// ServerStatus returns a status that the server reports itself: one condition, for the current version of the resource. A
// later report of the agent replaces it.
func ServerStatus(r *resource.Resource, server string, condition metav1.Condition, now time.Time) (*resource.Status, error) {
	condition.LastTransitionTime = metav1.NewTime(now)
	condition.ObservedGeneration = r.Version
	body, err := json.Marshal(workpayload.ManifestBundleStatus{Conditions: []metav1.Condition{condition}})
	if err != nil {
		return nil, err
	}
	return &resource.Status{
		ResourceID: r.ID, Consumer: r.Consumer, Version: r.Version, Agent: server, Sequence: "0",
		Hash: uuid.NewSHA1(uuid.NameSpaceOID, body).String(), Body: body, Deleted: condition.Type == common.ResourceDeleted,
	}, nil
}

// extensionReader reads the extensions of an event and stores the first error.
type extensionReader struct {
	values map[string]any
	err    error
}

func extensions(evt *cloudevents.Event) *extensionReader {
	return &extensionReader{values: evt.Extensions()}
}

func (a *extensionReader) fail(format string, args ...any) {
	if a.err == nil {
		a.err = resource.Errorf(maestroapi.ReasonMalformed, format, args...)
	}
}

func (a *extensionReader) text(name string) string {
	v := a.optionalText(name)
	if v == "" {
		a.fail("extension %s is missing or empty", name)
	}
	return v
}

func (a *extensionReader) optionalText(name string) string {
	v, ok := a.values[name]
	if !ok {
		return ""
	}
	s, err := cetypes.Format(v)
	if err != nil {
		a.fail("extension %s: %v", name, err)
	}
	return s
}

func (a *extensionReader) optionalInteger(name string) int64 {
	v, ok := a.values[name]
	if !ok {
		return 0
	}
	n, err := cetypes.ToInteger(v)
	if err != nil {
		a.fail("extension %s is not an integer: %v", name, err)
	}
	return int64(n)
}

const (
	// versionsPerPart keeps a part below the limit of a message, with IDs of up to 48 bytes.
	versionsPerPart = 4000
	// maxParts bounds the parts of one resync.
	maxParts = 100
)

// EncodeSpecResync returns the events that request every resource that differs from the works of the agent.
func EncodeSpecResync(agent, consumer, id string, held []payload.ResourceVersion) ([]*cloudevents.Event, error) {
	parts := max(1, (len(held)+versionsPerPart-1)/versionsPerPart)
	events := make([]*cloudevents.Event, 0, parts)
	for part := range parts {
		evt, err := encodeSpecResync(agent, consumer, id, held[part*versionsPerPart:min(len(held), (part+1)*versionsPerPart)])
		if err != nil {
			return nil, err
		}
		if parts > 1 {
			evt.SetExtension(maestroapi.ExtensionResyncPart, part+1)
			evt.SetExtension(maestroapi.ExtensionResyncParts, parts)
		}
		events = append(events, evt)
	}
	return events, nil
}

func encodeSpecResync(agent, consumer, id string, held []payload.ResourceVersion) (*cloudevents.Event, error) {
	evt := types.NewEventBuilder(agent, types.CloudEventsType{
		CloudEventsDataType: dataType, SubResource: types.SubResourceSpec, Action: types.ResyncRequestAction,
	}).WithOriginalSource(types.SourceAll).WithClusterName(consumer).NewEvent()
	evt.SetExtension(maestroapi.ExtensionResyncID, id)
	if err := evt.SetData(cloudevents.ApplicationJSON, payload.ResourceVersionList{Versions: held}); err != nil {
		return nil, fmt.Errorf("encoding a spec resync: %w", err)
	}
	return &evt, nil
}

// AcknowledgeResync returns the event that acknowledges a spec resync, or nil if the agent does not need one.
func AcknowledgeResync(request *cloudevents.Event, source string) *cloudevents.Event {
	id, ok := request.Extensions()[maestroapi.ExtensionResyncID]
	if !ok {
		return nil
	}
	ext := extensions(request)
	evt := types.NewEventBuilder(source, types.CloudEventsType{
		CloudEventsDataType: dataType, SubResource: types.SubResourceSpec, Action: types.ResyncResponseAction,
	}).WithClusterName(ext.optionalText(types.ExtensionClusterName)).NewEvent()
	evt.SetExtension(maestroapi.ExtensionResyncID, id)
	if err := evt.SetData(cloudevents.ApplicationJSON, struct{}{}); err != nil {
		return nil
	}
	return &evt
}

// AcknowledgedResync returns the ID of the spec resync that an event acknowledges, or "" for any other event.
func AcknowledgedResync(evt *cloudevents.Event) string {
	t, err := types.ParseCloudEventsType(evt.Type())
	if err != nil || t.SubResource != types.SubResourceSpec || t.Action != types.ResyncResponseAction {
		return ""
	}
	return extensions(evt).optionalText(maestroapi.ExtensionResyncID)
}

// StatusView returns the status of a resource in the schema of the published REST API: the conditions, the status of each
// manifest, and the resource version, sequence ID and hash of the report. It returns nil before the first report.
func StatusView(r *resource.Resource) (json.RawMessage, error) {
	if r.Status == nil {
		return nil, nil
	}
	body := map[string]json.RawMessage{}
	if err := json.Unmarshal(r.Status.Body, &body); err != nil {
		return nil, fmt.Errorf("status of resource %s: %w", r.ID, err)
	}
	view := map[string]any{
		"ObservedVersion": r.Status.Version,
		"SequenceID":      r.Status.Sequence,
		"StatusHash":      r.Status.Hash,
		"conditions":      body["conditions"],
		"resourceStatus":  body["resourceStatus"],
	}
	return json.Marshal(view)
}
