// Package recording is the format of recordings: what an engineer typed into a command in a pod, and what the command printed.
//
// A recording is an asciicast of version 2 (https://docs.asciinema.org/manual/asciicast/v2/), which a Writer seals message by message into a
// Log. A Log is a sequence of lines of JSON. The first line has the Facts in clear text, and the key of the recording, which is sealed for the
// readers of recordings. Each further line has a part of the asciicast, encrypted with that key. So the process that writes a recording can
// not read it after its end. Every prefix of complete lines can be read. A change, a removed or an exchanged line is an error of the
// reader, and a missing end is visible: the last line of a complete recording is marked.
//
// Everybody who has the public key of the readers can seal a key of a recording. So the session gateway signs the first line with its audit key. Nobody
// else can introduce the key of the recording, without which nobody can write a further line.
//
// The input may be a secret that somebody typed. Nothing of it may reach a log, a metric or an error.
package recording

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Person identifies the engineer who owns the session.
type Person struct {
	Name     string `json:"name"`
	ObjectID string `json:"objectId"`
	TenantID string `json:"tenantId,omitempty"`
}

// Facts is what a Log states about its recording in clear text. It does not contain the command, whose arguments may be secret.
type Facts struct {
	// ID is the ID of the request, which the audit records and the event in the audit log of the API server have too.
	ID        string `json:"id"`
	SessionID string `json:"sessionId"`
	// ClusterUID and ResourceID identify the cluster. Shard is the provision shard of the management cluster, or service-cluster; empty for a cluster.
	ClusterUID string    `json:"clusterUid,omitempty"`
	ResourceID string    `json:"resourceId,omitempty"`
	Shard      string    `json:"shard,omitempty"`
	Owner      Person    `json:"owner"`
	Reason     string    `json:"reason"`
	Ticket     string    `json:"ticket,omitempty"`
	Start      time.Time `json:"start"`
	// Kind is the resource: pods/exec, pods/attach, or one of which a request creates or changes an object. Pod is the name of the pod or of that object.
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	// Container is empty for the pod's default container.
	Container string `json:"container,omitempty"`
	TTY       bool   `json:"tty,omitempty"`
}

// End is what the last line of a complete Log states in clear text.
type End struct {
	Time time.Time `json:"time"`
	// Reason is a sentence for people: why the recording ended.
	Reason string `json:"reason"`
}

var validID = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// ValidID reports whether a text is the ID of a recording: a UUID in lower case.
func ValidID(id string) bool { return validID.MatchString(id) }

// logPrefix is the prefix of the names of Logs.
const logPrefix = "recording-"

// LogName returns the name of a recording's Log, which is a name of package audit/sink. The ID must be valid.
func LogName(id string) string {
	digits := strings.ReplaceAll(id, "-", "")
	return logPrefix + digits[:16] + "-" + digits[16:]
}

var logNames = regexp.MustCompile(`^` + logPrefix + `([0-9a-f]{8})([0-9a-f]{4})([0-9a-f]{4})-([0-9a-f]{4})([0-9a-f]{12})$`)

// IDOf returns the ID of the recording with the Log of a name.
func IDOf(name string) (id string, err error) {
	parts := logNames.FindStringSubmatch(name)
	if parts == nil {
		return "", fmt.Errorf("%q is not the name of a recording's log", name)
	}
	return strings.Join(parts[1:], "-"), nil
}
