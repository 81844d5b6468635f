// Package maestro is a client of Maestro's published source protocol: CloudEvents over gRPC. A source publishes resource
// bundles, which are sets of manifests for one consumer under an ID that the source chooses, and subscribes to their status. It
// can request every status that differs from the one it holds. The client works with any Maestro server that implements the
// protocol. It uses the additions of hcpmesh's server if they are present: error reasons, the resulting version, and statuses
// without manifests. Manifests contain secrets, so the package never logs them.
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

// Attributes of each event, with their names in the binary mode of CloudEvents over gRPC.
const (
	attributeTime        = maestroapi.AttributePrefix + "time"
	attributeContentType = "contenttype"
)

// Bundle is a resource bundle to publish.
type Bundle struct {
	ID string
	// Name is for people. Maestro identifies the bundle by its ID.
	Name     string
	Consumer string
	// Version is the resource version that an update or deletion requires; 0 means the newest.
	Version   int64
	Labels    map[string]string
	Manifests []json.RawMessage
	Configs   []workv1.ManifestConfigOption
	// ReleaseFinalizers belong to a deletion. The agent removes these finalizers from the objects that it deletes, and from
	// objects that are being deleted in ReleaseNamespaces.
	ReleaseFinalizers []string
	ReleaseNamespaces []string
	// Trace is the W3C traceparent of the request that the bundle is published for; empty if its trace is not recorded.
	Trace string
}

// Event is the status of a bundle.
type Event struct {
	ResourceID string
	Consumer   string
	// Version is the resource version that the status is about.
	Version int64
	// Sequence orders the statuses of one agent and version.
	Sequence   string
	Agent      string
	StatusHash string
	// Body is the bundle's status, without manifests if the server supports that.
	Body []byte
}

// Errors that a caller handles. All other errors are worth a retry.
var (
	// ErrConflict is returned for an update of a version that is not the newest, and for a creation of an existing bundle.
	ErrConflict = errors.New("the resource has another version")
	// ErrNotFound is returned for an update of a bundle that does not exist.
	ErrNotFound = errors.New("the resource does not exist")
	// ErrRefused is returned for content that Maestro will never accept.
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

// bundleMetadata is the metadata of the ManifestWork.
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
	if b.Trace != "" {
		event.Attributes[maestroapi.AttributePrefix+maestroapi.ExtensionTraceParent] = text(b.Trace)
	}
	data := bundleData{Manifests: []json.RawMessage{}}
	if eventType == maestroapi.TypeDelete {
		event.Attributes[maestroapi.AttributePrefix+maestroapi.ExtensionDeletionTimestamp] = instant(now)
	} else {
		data = bundleData{Manifests: b.Manifests, ManifestConfigs: b.Configs,
			DeleteOption: &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeForeground}}
	}
	body, err := json.Marshal(data)
	if err != nil {
		return nil, errors.New("the manifests cannot be encoded") // the encoder's error may quote them
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
		return nil, true, fmt.Errorf("status event of resource %q: the ID is not a UUID", e.ResourceID)
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
