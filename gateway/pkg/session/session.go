// Package session knows the access sessions of a region and their connections to hosted API servers.
//
// A Registry follows two sources: the documents of sessions in Cosmos DB, and the clusters and break-glass credentials of Cluster Service.
// A document authorizes nothing by itself. A session for a cluster is ready when Cluster Service has issued the certificate of its credential, both agree with the
// owner, the elevation, the cluster and the mode of the session, and the key is one of those that admin sealed for the gateway. A session for a management cluster or
// for the service cluster is ready when a program there has issued a token for the signed intent of its owner.
//
// What a session permits never changes. A document that differs in it from the version that the gateway has read first, or from the credential or token, is forged:
// the session ends, and no later version opens it.
//
// Each session has a context, which ends with the session: when its document is ended, its credential is revoked or expires, its elevation
// ends or its cluster is deleted. All requests of the session end with it.
//
// A Dialer connects to API servers: directly, or through the tunnel of a management cluster.
package session

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/authn"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/readrules"
)

// The limits of a session on one replica. Each Kind of requests has its own.
const (
	MaxRequests = 50
	MaxWatches  = 20
	MaxStreams  = 10
	// MaxBytes is the number of bytes that the upgraded connections of a session transfer together.
	MaxBytes = 1 << 30
)

// Session is an open access session. Its exported fields never change. They are claims of the document until it has a Backend, which it gets only if the credential
// or the token of the session agrees with them.
type Session struct {
	ID string
	// ClusterUID and ResourceID identify the cluster. Shard is the provision shard of the management cluster, or service-cluster; empty for a cluster.
	ClusterUID, ResourceID, Shard string
	Mode                          adminv1.AccessMode
	// Readable is what the mode read may read.
	Readable readrules.Rules
	// Owner is the engineer, with the elevation, the reason and the ticket.
	Owner     database.AdminActor
	Emergency bool

	ctx     context.Context
	cancel  context.CancelCauseFunc
	backend atomic.Pointer[Backend]
	// deadline is when the session ends by time; nil until the Registry has decided about it.
	deadline atomic.Pointer[time.Time]
	// expiration is when its credential or token expires; nil before it was issued. changes are the requests that give access.
	expiration atomic.Pointer[time.Time]
	changes    changes
	// slots has a place for each request in progress.
	slots map[Kind]chan struct{}
	// maxBytes is the limit of transferred.
	maxBytes    int64
	transferred atomic.Int64
}

// Backend is the API server of a session.
type Backend struct {
	URL       *url.URL
	Transport *http.Transport
	// Token authenticates the session; empty if the certificate of Transport does. It is a secret.
	Token string
	// Dial opens a connection for HTTP/1.1, with the same certificates as Transport.
	Dial func(ctx context.Context) (net.Conn, error)
}

var hostedRules, managementRules, serviceRules = readrules.HostedCluster(), readrules.ManagementCluster(), readrules.ServiceCluster()

func newSession(document *database.AccessSessionDocument, maxBytes int64) *Session {
	s := &Session{ID: document.SessionID, ClusterUID: document.ClusterUID, ResourceID: document.ResourceID, Shard: document.Shard, Readable: hostedRules, Mode: adminv1.AccessMode(document.Mode), Owner: document.Owner,
		Emergency: document.Emergency, slots: map[Kind]chan struct{}{Request: make(chan struct{}, MaxRequests), Watch: make(chan struct{}, MaxWatches), Stream: make(chan struct{}, MaxStreams)},
		maxBytes: maxBytes}
	switch s.Shard {
	case "":
	case adminv1.ServiceCluster:
		s.Readable = serviceRules
	default:
		s.Readable = managementRules
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	return s
}

// Context returns the context of the session. Its cause is an *apierror.Error with the reason of the end.
func (s *Session) Context() context.Context { return s.ctx }

// Backend returns the API server, or nil if the session is not ready.
func (s *Session) Backend() *Backend { return s.backend.Load() }

// Deadline returns when the session ends by time, if nothing ends it before. It is the zero time for a session that is not ready.
func (s *Session) Deadline() time.Time {
	if deadline := s.deadline.Load(); deadline != nil {
		return *deadline
	}
	return time.Time{}
}

// OwnedBy reports whether a caller is the owner.
func (s *Session) OwnedBy(caller authn.Caller) bool {
	return caller.ObjectID != "" && caller.ObjectID == s.Owner.ObjectID && caller.TenantID == s.Owner.TenantID
}

// Kind is a kind of requests, each with a limit of its own. Its text is the plural for people.
type Kind string

// The kinds of requests. A Stream may transfer much in both directions, and a Watch hardly needs memory.
const (
	Request Kind = "requests"
	Watch   Kind = "watches"
	Stream  Kind = "followed logs, proxies and upgraded connections"
)

// Acquire counts a request until release is called. It returns an error if the session has too many of its kind.
func (s *Session) Acquire(kind Kind) (release func(), err error) {
	slots := s.slots[kind]
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, nil
	default:
		return nil, apierror.New(apierror.Throttled, "The session has %d %s in progress, which is the maximum.", cap(slots), kind).WithRetryAfter(time.Second)
	}
}

// Transfer counts bytes of an upgraded connection. It returns an error if the session has transferred too many.
func (s *Session) Transfer(bytes int) error {
	if s.transferred.Add(int64(bytes)) > s.maxBytes {
		return apierror.New(apierror.Throttled, "The session has transferred %d bytes over upgraded connections, which is the maximum. Request another one.", s.maxBytes)
	}
	return nil
}

// end ends the session and all of its requests.
func (s *Session) end(reason string) {
	s.cancel(apierror.New(apierror.PermissionDenied, "The session has ended: %s. Request another one.", reason))
	s.setBackend(nil)
}

// setBackend replaces the API server. Connections to the previous one end with their requests.
func (s *Session) setBackend(backend *Backend) {
	if previous := s.backend.Swap(backend); previous != nil {
		previous.Transport.CloseIdleConnections()
	}
}
