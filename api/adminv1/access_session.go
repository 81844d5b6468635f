package adminv1

import "time"

// AccessMode is what an engineer may do through an access session.
type AccessMode string

// The modes.
const (
	// AccessRead reads everything but secrets, with a certificate of LevelReader.
	AccessRead AccessMode = "read"
	// AccessAdmin does everything, with a certificate of LevelAdmin. It includes commands in pods and port forwarding.
	AccessAdmin AccessMode = "admin"
)

// Level returns the level of the certificate of a session with the mode; empty for an unknown mode.
func (m AccessMode) Level() Level {
	switch m {
	case AccessRead:
		return LevelReader
	case AccessAdmin:
		return LevelAdmin
	}
	return ""
}

// AccessModes returns the supported modes.
func AccessModes() []AccessMode { return []AccessMode{AccessRead, AccessAdmin} }

// AccessSessionState is the state of an access session.
type AccessSessionState string

// The states.
const (
	// AccessSessionRequested waits for the certificate, which the control plane signs.
	AccessSessionRequested AccessSessionState = "Requested"
	// AccessSessionReady can be used.
	AccessSessionReady AccessSessionState = "Ready"
	// AccessSessionEnded was ended, or its certificate has expired.
	AccessSessionEnded AccessSessionState = "Ended"
)

// AccessSessionRequest requests an access session: for a cluster, for the management cluster of a provision shard, or for the service cluster. The ID of the
// session is the ID of the operation.
type AccessSessionRequest struct {
	// Mode is read or admin. Empty means read. The mode admin requires an elevation of the class break-glass.
	Mode AccessMode `json:"mode,omitempty"`
	// Duration is the validity of the certificate or token and so of the session, a Go duration of 10m to 15m. Empty means the longest one that
	// ends before the elevation.
	Duration string `json:"duration,omitempty"`
}

// AccessSession is the access of an engineer to the API server of one cluster, of one management cluster, or of the service cluster, through the session
// gateway. The gateway holds the credential of the session; the engineer authenticates each request with their own token.
type AccessSession struct {
	ID    string             `json:"id"`
	State AccessSessionState `json:"state"`
	Mode  AccessMode         `json:"mode"`
	// Cluster is the cluster; empty for a management cluster and for the service cluster.
	Cluster ElevationCluster `json:"cluster,omitzero"`
	// Shard is the provision shard of the management cluster, or service-cluster; empty for a cluster.
	Shard string `json:"shard,omitempty"`
	// Name and ObjectID identify the engineer, the only one who can use it.
	Name     string `json:"name"`
	ObjectID string `json:"objectId"`
	// ElevationID is the elevation with which it was requested, with its reason and ticket.
	ElevationID string `json:"elevationId"`
	Reason      string `json:"reason"`
	Ticket      string `json:"ticket,omitempty"`
	Emergency   bool   `json:"emergency,omitempty"`
	// URL is the address of the API server at the session gateway.
	URL         string    `json:"url"`
	RequestTime time.Time `json:"requestTime"`
	// ReadyTime and ExpirationTime are set when the certificate or token was issued.
	ReadyTime      *time.Time `json:"readyTime,omitempty"`
	ExpirationTime *time.Time `json:"expirationTime,omitempty"`
	// CertificateFingerprint is the SHA-256 of the certificate in lower-case hex. The audit log of the API server has it. Sessions for management clusters and
	// for the service cluster have a token and no certificate.
	CertificateFingerprint string `json:"certificateFingerprint,omitempty"`
	// EndTime, EndedBy and EndReason are set when it has ended.
	EndTime   *time.Time `json:"endTime,omitempty"`
	EndedBy   string     `json:"endedBy,omitempty"`
	EndReason string     `json:"endReason,omitempty"`
	// Objects are the requests of the session that create or change an object that gives access, in the order of the requests.
	Objects []AccessSessionObject `json:"objects,omitempty"`
}

// AccessSessionObject is a request that creates or changes an object that gives access, for example a binding. The gateway removes what the session has created.
type AccessSessionObject struct {
	// Request is the ID of the request in the audits, and of its recording.
	Request string `json:"request"`
	Verb    string `json:"verb"`
	// Kind is the resource with its group.
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name,omitempty"`
	Time      time.Time `json:"time"`
	// Outcome is Removed if the object does not exist any more, and Left if it may exist after the session. It is empty before the gateway knows. Reason is why it
	// was left.
	Outcome string `json:"outcome,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

// AccessSessionList lists access sessions, newest first.
type AccessSessionList struct {
	Items []AccessSession `json:"items"`
}

// AccessSessionPath returns the path of a session's API server at the session gateway.
func AccessSessionPath(id string) string { return "/sessions/" + id + "/kas" }
