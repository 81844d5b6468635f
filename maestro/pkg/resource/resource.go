// Package resource holds the words Maestro is about: a resource is a bundle of manifests that a source (Cluster
// Service, say) wants on a consumer (a management cluster), together with the newest status its agent reported. The
// store keeps them, deliveries send them, agents report on them; this package only says what they are and which
// mistakes a request about them can make.
package resource

import (
	"encoding/json"
	"fmt"
	"time"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
)

// Consumer is a management cluster that an agent applies resources to.
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
	// Source is who published it; only its own status subscribers hear of it.
	Source   string
	Consumer string
	// Version grows by one with each change of Metadata or Spec and goes on growing when an id is used again after a
	// deletion. On the agent's side it is the ManifestWork's generation.
	Version int64
	// Metadata is the ObjectMeta that the source sent with it, as JSON; nil when it sent none.
	Metadata json.RawMessage
	// Spec is the manifest bundle: manifests, deleteOption, manifestConfigs, executer.
	Spec json.RawMessage
	// Tracing is the source's log tracing extension, carried along untouched.
	Tracing string
	// Status is the newest that was reported, nil before the first report.
	Status *Status

	CreatedAt time.Time
	UpdatedAt time.Time
	// DeletedAt is when deletion was asked for; zero otherwise. The resource stays until the agent has confirmed.
	DeletedAt time.Time
	// Parked says why the resource's newest version cannot be sent; empty when it can.
	Parked string
}

// Status is one report about a resource by an agent, or about its delivery by the server.
type Status struct {
	// ResourceID, Consumer and Version say what the report is about.
	ResourceID string
	Consumer   string
	Version    int64
	// Agent is the reporting agent's client id, which names one run of the agent's sequence.
	Agent string
	// Sequence orders the reports of one agent run about one resource (a snowflake id).
	Sequence string
	// Hash is the agent's hash of the whole status, which a status resync compares.
	Hash string
	// Body is the manifest bundle's status: conditions and resourceStatus.
	Body json.RawMessage
	// Deleted tells that the agent has removed everything the resource had brought.
	Deleted bool
}

// Released gives the annotations of metadata that say what a deletion releases; nil when there are none.
func Released(metadata json.RawMessage) map[string]string {
	var meta struct {
		Annotations map[string]string `json:"annotations"`
	}
	if len(metadata) == 0 || json.Unmarshal(metadata, &meta) != nil {
		return nil
	}
	var released map[string]string
	for _, name := range []string{maestroapi.AnnotationReleaseFinalizers, maestroapi.AnnotationReleaseNamespaces} {
		if value := meta.Annotations[name]; value != "" {
			if released == nil {
				released = map[string]string{}
			}
			released[name] = value
		}
	}
	return released
}

// WithReleased gives metadata with these annotations, and whether that is a change.
func WithReleased(metadata json.RawMessage, released map[string]string) (with json.RawMessage, changed bool, err error) {
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

// Error is a request's own fault. Every other error is the service's.
type Error struct {
	Reason  maestroapi.Reason
	Message string
}

func (e *Error) Error() string { return e.Message }

// Errorf makes an Error.
func Errorf(reason maestroapi.Reason, format string, args ...any) *Error {
	return &Error{Reason: reason, Message: fmt.Sprintf(format, args...)}
}
