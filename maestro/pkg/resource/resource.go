// Package resource defines Maestro's core types. A resource is a bundle of manifests that a source (for example Cluster
// Service) publishes for a consumer (a management cluster), together with the newest status that the agent reported. An Error
// is a rejected request.
package resource

import (
	"encoding/json"
	"fmt"
	"time"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
)

// Consumer is a management cluster. Its agent applies resources to it.
type Consumer struct {
	ID        string
	Name      string
	Labels    map[string]string
	CreatedAt time.Time
	UpdatedAt time.Time
}

// Resource is a manifest bundle of one source on one consumer.
type Resource struct {
	// ID is chosen by the source and unique among all resources.
	ID string
	// Source is the client that published it. Only its subscriptions receive the statuses.
	Source   string
	Consumer string
	// Version grows by one with each change of Metadata or Spec, also when an ID is used again after a deletion. The agent
	// uses it as the generation of the ManifestWork.
	Version int64
	// Metadata is the ObjectMeta of the request, as JSON; nil if there was none.
	Metadata json.RawMessage
	// Spec is the manifest bundle: manifests, deleteOption, manifestConfigs, executer.
	Spec json.RawMessage
	// Tracing is the log tracing extension of the request, which is passed on unchanged.
	Tracing string
	// TraceParent is the W3C trace context of the request that the newest version was published for; empty if there is none.
	TraceParent string
	// Status is the newest reported status; nil before the first report.
	Status *Status

	CreatedAt time.Time
	UpdatedAt time.Time
	// DeletedAt is the time of the request to delete it, or zero. The resource exists until the agent confirms the deletion.
	DeletedAt time.Time
	// Parked is the reason why the newest version cannot be sent, or "".
	Parked string
}

// Status is a report of an agent about a resource, or of the server about its delivery.
type Status struct {
	// ResourceID, Consumer and Version identify the reported version of the resource.
	ResourceID string
	Consumer   string
	Version    int64
	// Agent is the client ID of the agent.
	Agent string
	// Sequence orders the reports of one run of an agent about one resource. It is a snowflake ID.
	Sequence string
	// Hash is the agent's hash of the status, for comparison in a status resync.
	Hash string
	// Body is the status of the manifest bundle: conditions and resourceStatus.
	Body json.RawMessage
	// Deleted means that the agent has deleted everything that the resource created.
	Deleted bool
}

// ReleaseAnnotations returns the annotations of metadata with which a deletion releases finalizers; nil if there are none.
func ReleaseAnnotations(metadata json.RawMessage) map[string]string {
	var meta struct {
		Annotations map[string]string `json:"annotations"`
	}
	if len(metadata) == 0 || json.Unmarshal(metadata, &meta) != nil {
		return nil
	}
	var annotations map[string]string
	for _, name := range []string{maestroapi.AnnotationReleaseFinalizers, maestroapi.AnnotationReleaseNamespaces} {
		if value := meta.Annotations[name]; value != "" {
			if annotations == nil {
				annotations = map[string]string{}
			}
			annotations[name] = value
		}
	}
	return annotations
}

// WithReleaseAnnotations returns metadata with the annotations added, and whether that changes it.
func WithReleaseAnnotations(metadata json.RawMessage, released map[string]string) (with json.RawMessage, changed bool, err error) {
	all := map[string]any{}
	if len(metadata) > 0 {
		if err := json.Unmarshal(metadata, &all); err != nil {
			return nil, false, fmt.Errorf("metadata: %w", err)
		}
	}
	annotations, _ := all["annotations"].(map[string]any)
	if annotations == nil {
		annotations = map[string]any{}
	}
	for name, value := range released {
		if annotations[name] != value {
			annotations[name], changed = value, true
		}
	}
	if !changed {
		return metadata, false, nil
	}
	all["annotations"] = annotations
	with, err = json.Marshal(all)
	return with, true, err
}

// Error is the reason why a request was rejected. All other errors are internal.
type Error struct {
	Reason  maestroapi.Reason
	Message string
}

func (e *Error) Error() string { return e.Message }

// Errorf returns an Error with a formatted message.
func Errorf(reason maestroapi.Reason, format string, args ...any) *Error {
	return &Error{Reason: reason, Message: fmt.Sprintf(format, args...)}
}
