package adminv1

import "time"

// AsciicastType is the media type of the content of a recording: an asciicast of version 2.
const AsciicastType = "application/x-asciicast"

// Recording describes the recording of a command or an attachment in an access session. It has neither the command nor what was typed and
// shown: the content of the recording has them.
type Recording struct {
	// ID is the ID of the request in the audit of the session gateway and of the API server.
	ID        string `json:"id"`
	SessionID string `json:"sessionId"`
	// Cluster is the cluster, or Shard the provision shard of the management cluster, or service-cluster.
	Cluster ElevationCluster `json:"cluster,omitzero"`
	Shard   string           `json:"shard,omitempty"`
	// Name and ObjectID identify the engineer. Reason and Ticket are those of the session.
	Name     string `json:"name"`
	ObjectID string `json:"objectId"`
	Reason   string `json:"reason"`
	Ticket   string `json:"ticket,omitempty"`
	// Kind is pods/exec, pods/attach, or the resource of an object that was created or changed, whose name is Pod. Container is empty for the default container of the pod.
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace"`
	Pod       string    `json:"pod"`
	Container string    `json:"container,omitempty"`
	TTY       bool      `json:"tty,omitempty"`
	StartTime time.Time `json:"startTime"`
	// EndTime and EndReason are set when it has ended.
	EndTime   *time.Time `json:"endTime,omitempty"`
	EndReason string     `json:"endReason,omitempty"`
	// Complete is false after the end if the last messages may be missing: the session gateway was killed, or its disk could not be written.
	Complete bool `json:"complete,omitempty"`
	// Bytes is the encrypted size when the description was written.
	Bytes int64 `json:"bytes"`
}

// RecordingState is the state of a recording.
type RecordingState string

// The states.
const (
	RecordingInProgress RecordingState = "in progress"
	// RecordingInterrupted has ended, and its last messages may be missing.
	RecordingInterrupted RecordingState = "interrupted"
	RecordingComplete    RecordingState = "complete"
)

// State returns the state of the recording.
func (r Recording) State() RecordingState {
	switch {
	case r.EndTime == nil:
		return RecordingInProgress
	case !r.Complete:
		return RecordingInterrupted
	}
	return RecordingComplete
}

// RecordingList lists recordings, newest first.
type RecordingList struct {
	Items []Recording `json:"items"`
}
