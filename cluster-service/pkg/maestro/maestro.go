// Package maestro is a client of Maestro's published source protocol: CloudEvents over gRPC. A source publishes resource
// bundles (a set of manifests for one consumer, under an id of the source's choice) and subscribes to their status; it
// can ask for every status that differs from what it holds. The client works against any Maestro server that keeps the
// protocol and takes what hcpmesh's server adds (error reasons, the resulting version, statuses without manifests) where
// it is there. Manifests carry secrets: nothing here logs them.
package maestro

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"
	workv1 "open-cluster-management.io/api/work/v1"
	pbv1 "open-cluster-management.io/sdk-go/pkg/cloudevents/generic/options/grpc/protobuf/v1"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
)

// Attributes of each event, as the binary mode of CloudEvents over gRPC names them.
const (
	attributeTime        = maestroapi.AttributePrefix + "time"
	attributeContentType = "contenttype"
)

// Bundle is a resource bundle to publish.
type Bundle struct {
	ID string
	// Name is for people; Maestro knows the bundle by its id.
	Name     string
	Consumer string
	// Version is the resource version that an update or deletion builds on; 0 means the newest.
	Version   int64
	Labels    map[string]string
	Manifests []json.RawMessage
	Configs   []workv1.ManifestConfigOption
	// ReleaseFinalizers go with a deletion: the agent takes them off what it deletes, and off what is being deleted in
	// ReleaseNamespaces.
	ReleaseFinalizers []string
	ReleaseNamespaces []string
}

// Event is the status of a bundle.
type Event struct {
	ResourceID string
	Consumer   string
	// Version is the resource version that the status is about.
	Version int64
	// Sequence orders the statuses of one Agent and version.
	Sequence   string
	Agent      string
	StatusHash string
	// Body is the bundle's status, without manifests where the server can leave them out.
	Body []byte
}

// The refusals that a caller can do something about.
var (
	// ErrConflict is an update that builds on another version than the newest, or a creation of what exists.
	ErrConflict = errors.New("the resource has another version")
	// ErrNotFound is an update of what does not exist.
	ErrNotFound = errors.New("there is no such resource")
	// ErrRefused is content that Maestro will never take.
	ErrRefused = errors.New("refused")
)

func text(s string) *pbv1.CloudEventAttributeValue {
	return &pbv1.CloudEventAttributeValue{Attr: &pbv1.CloudEventAttributeValue_CeString{CeString: s}}
}

func instant(t time.Time) *pbv1.CloudEventAttributeValue {
	return &pbv1.CloudEventAttributeValue{Attr: &pbv1.CloudEventAttributeValue_CeTimestamp{CeTimestamp: timestamppb.New(t)}}
}

func newEvent(source, eventType string, now time.Time) *pbv1.CloudEvent {
	return &pbv1.CloudEvent{Id: uuid.NewString(), Source: source, SpecVersion: "1.0", Type: eventType,
		Attributes: map[string]*pbv1.CloudEventAttributeValue{attributeTime: instant(now), attributeContentType: text("application/json"),
			maestroapi.AttributePrefix + maestroapi.ExtensionOriginalSource: text("")}}
}

// bundleData is the data of a spec event.
type bundleData struct {
	Manifests       []json.RawMessage             `json:"manifests"`
	DeleteOption    *workv1.DeleteOption          `json:"deleteOption,omitempty"`
	ManifestConfigs []workv1.ManifestConfigOption `json:"manifestConfigs,omitempty"`
}

// bundleMetadata is the part of a ManifestWork's metadata that is sent.
type bundleMetadata struct {
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace"`
	UID         string            `json:"uid"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

func bundleEvent(source, eventType string, b *Bundle, now time.Time) (*pbv1.CloudEvent, error) {
	event := newEvent(source, eventType, now)
	about := bundleMetadata{Name: b.Name, Namespace: b.Consumer, UID: b.ID, Labels: b.Labels}
	if eventType == maestroapi.TypeDelete && len(b.ReleaseFinalizers) > 0 {
		about.Annotations = map[string]string{maestroapi.AnnotationReleaseFinalizers: strings.Join(b.ReleaseFinalizers, ",")}
		if len(b.ReleaseNamespaces) > 0 {
			about.Annotations[maestroapi.AnnotationReleaseNamespaces] = strings.Join(b.ReleaseNamespaces, ",")
		}
	}
	metadata, err := json.Marshal(about)
	if err != nil {
		return nil, err
	}
	event.Attributes[maestroapi.AttributePrefix+maestroapi.ExtensionResourceID] = text(b.ID)
	event.Attributes[maestroapi.AttributePrefix+maestroapi.ExtensionClusterName] = text(b.Consumer)
	event.Attributes[maestroapi.AttributePrefix+maestroapi.ExtensionResourceVersion] = &pbv1.CloudEventAttributeValue{Attr: &pbv1.CloudEventAttributeValue_CeInteger{CeInteger: int32(b.Version)}}
	event.Attributes[maestroapi.AttributePrefix+maestroapi.ExtensionMetadata] = text(string(metadata))
	data := bundleData{Manifests: []json.RawMessage{}}
	if eventType == maestroapi.TypeDelete {
		event.Attributes[maestroapi.AttributePrefix+maestroapi.ExtensionDeletionTimestamp] = instant(now)
	} else {
		data = bundleData{Manifests: b.Manifests, ManifestConfigs: b.Configs,
			DeleteOption: &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeForeground}}
	}
	body, err := json.Marshal(data)
	if err != nil {
		return nil, errors.New("the manifests cannot be encoded") // the encoder's error could quote them
	}
	event.Data = &pbv1.CloudEvent_BinaryData{BinaryData: body}
	return event, nil
}

// decodeStatus reads a status event; ok is false for events of other types.
func decodeStatus(event *pbv1.CloudEvent) (e *Event, ok bool, err error) {
	if event.GetType() != maestroapi.TypeStatusUpdate && event.GetType() != maestroapi.TypeStatusResyncResponse {
		return nil, false, nil
	}
	a := event.GetAttributes()
	e = &Event{
		ResourceID: stringOf(a[maestroapi.AttributePrefix+maestroapi.ExtensionResourceID]),
		Consumer:   stringOf(a[maestroapi.AttributePrefix+maestroapi.ExtensionClusterName]),
		Version:    integerOf(a[maestroapi.AttributePrefix+maestroapi.ExtensionResourceVersion]),
		Sequence:   stringOf(a[maestroapi.AttributePrefix+maestroapi.ExtensionSequenceID]),
		StatusHash: stringOf(a[maestroapi.AttributePrefix+maestroapi.ExtensionStatusHash]),
		Agent:      event.GetSource(),
		Body:       event.GetBinaryData(),
	}
	if e.Body == nil {
		e.Body = []byte(event.GetTextData())
	}
	if _, err := uuid.Parse(e.ResourceID); err != nil {
		return nil, true, fmt.Errorf("a status event is about resource %q, which is not a UUID", e.ResourceID)
	}
	return e, true, nil
}

func stringOf(v *pbv1.CloudEventAttributeValue) string {
	switch attr := v.GetAttr().(type) {
	case *pbv1.CloudEventAttributeValue_CeString:
		return attr.CeString
	case *pbv1.CloudEventAttributeValue_CeInteger:
		return fmt.Sprint(attr.CeInteger)
	}
	return ""
}

func integerOf(v *pbv1.CloudEventAttributeValue) int64 {
	switch attr := v.GetAttr().(type) {
	case *pbv1.CloudEventAttributeValue_CeInteger:
		return int64(attr.CeInteger)
	case *pbv1.CloudEventAttributeValue_CeString:
		var n int64
		if _, err := fmt.Sscan(attr.CeString, &n); err == nil {
			return n
		}
	}
	return 0
}
