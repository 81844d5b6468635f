// Package proxy forwards the requests of access sessions to the API servers of hosted clusters and of management clusters. Each request passes these steps, and none of them can be
// left out: the token of the engineer is verified; the session is open, and the engineer owns it; the request is one that the mode of the
// session permits; the audit has a record that the request begins; the headers that the API server may see are copied, and no others. A
// change or a stream waits until that record is on the disk. The record with the outcome follows. Commands and attachments are recorded too, by
// package recorder, and so is what a request creates that runs commands or gives access.
//
// The response ends when the client, the session or the process ends.
package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/gateway/pkg/policy"
	"github.com/hcpmesh/hcpmesh/gateway/pkg/recorder"
	"github.com/hcpmesh/hcpmesh/gateway/pkg/session"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/authn"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/internal/ratelimit"
	format "github.com/hcpmesh/hcpmesh/internal/recording"
)

const (
	// MaxBody is the maximum size of the body of a request in bytes. API servers accept less than that.
	MaxBody = 8 << 20
	// recordTimeout limits the wait for an audit record after the client may have gone.
	recordTimeout = 10 * time.Second
	// drain is how long upgraded connections continue while the process stops.
	drain = 8 * time.Second
	// flushAtOnce makes the proxy pass on each part of a response as it arrives.
	flushAtOnce = -1
)

// Sessions returns open sessions. *session.Registry implements it.
type Sessions interface {
	// Fresh returns an error if the end of a session may be unknown.
	Fresh() error
	// Get returns an open session, or the reason of the end of one that has ended.
	Get(id string) (open *session.Session, ended string)
	// Note notes that a request gives access, before it is forwarded.
	Note(ctx context.Context, s *session.Session, object database.AccessObject, path, keep string) (*session.Change, error)
}

// Refusals stores the records of refused requests. *refusals.Aggregator implements it.
type Refusals interface {
	Refused(ctx context.Context, r audit.Record)
}

// Recordings records commands and attachments. *recorder.Store implements it.
type Recordings interface {
	// Available returns an error if Start would return one.
	Available() error
	// Start begins a recording.
	Start(facts format.Facts, command []string) (*recorder.Recording, error)
}

// Options are the parts of a Handler.
type Options struct {
	Sessions      Sessions
	Recordings    Recordings
	Authenticator authn.Authenticator
	Audit         audit.Recorder
	Refusals      Refusals
	// Clock limits how long upgraded connections continue after EndStreams, and how long the gateway waits for the peers of those that end; nil means
	// the real clock.
	Clock clock.WithDelayedExecution
	// AuthenticationFailures is the limit of failed authentications of a peer that get the cause; nil means a default.
	AuthenticationFailures *ratelimit.Limit
	Log                    *slog.Logger
	Metrics                prometheus.Registerer
}

// Handler serves /sessions/ID/kas/. It is safe for concurrent use.
type Handler struct {
	Options
	requests *prometheus.CounterVec
	open     *prometheus.GaugeVec

	// failures limits the rate of failed authentications.
	failures *ratelimit.Buckets
	// recording are the records of outcomes that are being stored.
	recording sync.WaitGroup
	// upgraded are the requests whose connections are upgraded, which no HTTP server waits for.
	upgraded sync.WaitGroup
	// messages are buffers for messages to API servers.
	messages sync.Pool
	// stopping ends when EndStreams is called, and drained a while later.
	stopping, drained context.Context
	stop, endUpgraded context.CancelCauseFunc
}

// The outcomes of requests in the metric.
const (
	outcomeForwarded = "forwarded"
	outcomeRefused   = "refused"
	outcomeFailed    = "failed"
)

// The kinds of requests in the metric.
const (
	kindRequest = "request"
	kindStream  = "stream"
	kindUpgrade = "upgrade"
)

// errStopping is the reason why streams end when the process stops.
var errStopping = apierror.New(apierror.Unavailable, "The session gateway stops. Repeat the request.").WithRetryAfter(time.Second)

// New returns a Handler. It registers its metrics.
func New(options Options) *Handler {
	h := &Handler{Options: options,
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "gateway_access_requests_total",
			Help: "Requests of access sessions by outcome: forwarded to the API server, refused by the gateway, or failed because something was away."}, []string{"outcome"}),
		open: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "gateway_access_requests_in_progress",
			Help: "Requests of access sessions in progress by kind: request; stream for watches, followed logs and proxies; upgrade for commands in pods and port forwarding."}, []string{"kind"}),
	}
	if options.AuthenticationFailures == nil {
		options.AuthenticationFailures = &ratelimit.Limit{Size: 300, PerSecond: 5}
	}
	if h.Clock == nil {
		h.Clock = clock.RealClock{}
	}
	h.failures = ratelimit.New(*options.AuthenticationFailures, time.Now)
	h.stopping, h.stop = context.WithCancelCause(context.Background())
	h.drained, h.endUpgraded = context.WithCancelCause(context.Background())
	for _, outcome := range []string{outcomeForwarded, outcomeRefused, outcomeFailed} {
		h.requests.WithLabelValues(outcome)
	}
	for _, kind := range []string{kindRequest, kindStream, kindUpgrade} {
		h.open.WithLabelValues(kind)
	}
	options.Metrics.MustRegister(h.requests, h.open)
	return h
}

// EndStreams ends all streams, because the process stops. Upgraded connections end a while later: nobody can continue them. Other requests continue.
func (h *Handler) EndStreams() {
	h.stop(errStopping)
	h.Clock.AfterFunc(drain, func() { h.endUpgraded(errStopping) })
}

// exchange is one request and its response.
type exchange struct {
	id     string
	w      http.ResponseWriter
	r      *http.Request
	caller authn.Caller
	// session and parsed are set as far as the request was understood.
	session *session.Session
	parsed  *policy.Request
	// protocol is what the connection must be upgraded to; empty if it stays HTTP.
	protocol policy.Protocol
	// path is the encoded path for the API server; empty if the request has none.
	path string
	// content is what of the body must be recorded before the request is forwarded; nil if nothing is.
	content *policy.Record
	// change is set if the request gives access.
	change *session.Change
	// begun is set when the audit has the beginning of the request, and so gets its outcome.
	begun bool
	// status is that of the response of the API server; 0 if there is none. failure is why the response is not complete.
	status  int
	failure error
	// switched is set when the client's connection does not have the protocol HTTP any more.
	switched bool
	// interrupted is set when the session has ended during the request: the connection of HTTP/1 cannot be used any more.
	interrupted atomic.Bool
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{id: uuid.NewString(), w: w, r: r}
	w.Header().Set("X-Request-Id", x.id)
	backend, err := h.admit(x)
	if err == nil {
		err = h.forward(x, backend)
	}
	if err != nil {
		h.fail(x, err)
	}
}

// admit returns the API server of a request that is permitted.
func (h *Handler) admit(x *exchange) (*session.Backend, error) {
	caller, err := h.Authenticator.Authenticate(x.r.Context(), x.r)
	if err != nil {
		process.CloseUnread(x.w, x.r)
		return nil, authn.LimitFailure(h.failures, x.r.RemoteAddr, err)
	}
	x.caller = caller
	id, path, ok := splitPath(x.r)
	if !ok {
		return nil, apierror.New(apierror.NotFound, "The path is not that of a session: %s/….", adminv1.AccessSessionPath("ID"))
	}
	x.path = path
	if err := h.Sessions.Fresh(); err != nil {
		return nil, err
	}
	open, ended := h.Sessions.Get(id)
	switch {
	case open == nil && ended != "":
		return nil, apierror.New(apierror.PermissionDenied, "The session has ended: %s. Request another one: hcpctl access open.", ended)
	case open == nil, !open.OwnedBy(caller):
		return nil, apierror.New(apierror.PermissionDenied, "The session does not exist, or it is the session of another engineer.")
	}
	x.session = open
	if x.parsed, err = policy.Parse(x.r, path); err != nil {
		return nil, err
	}
	// The decision is first: its error names the resource and the mode.
	if err := policy.Decide(open.Mode, open.Readable, x.parsed); err != nil {
		return nil, err
	}
	if err := policy.CheckHeaders(x.r); err != nil {
		return nil, err
	}
	if x.parsed.Recorded() {
		// kubectl repeats a failed upgrade with SPDY, and prints the error of that.
		if err := h.Recordings.Available(); err != nil {
			return nil, err
		}
	}
	if x.protocol, err = policy.Upgrade(x.r, x.parsed); err != nil {
		return nil, err
	}
	backend := open.Backend()
	if backend == nil {
		return nil, apierror.New(apierror.Unavailable, "The session is not ready: its credential was not issued yet.").WithRetryAfter(time.Second)
	}
	return backend, nil
}

// splitPath returns the ID of the session, and the encoded path for the API server.
func splitPath(r *http.Request) (id, path string, ok bool) {
	rest, ok := strings.CutPrefix(r.URL.EscapedPath(), "/sessions/")
	if !ok {
		return "", "", false
	}
	id, path, ok = strings.Cut(rest, "/kas/")
	if _, err := uuid.Parse(id); err != nil || !ok || len(id) != 36 {
		return "", "", false
	}
	return strings.ToLower(id), "/" + path, true
}

// forward sends a request to the API server and the response to the client.
func (h *Handler) forward(x *exchange, backend *session.Backend) error {
	stream := x.parsed.Follows
	release, err := x.session.Acquire(x.limit())
	if err != nil {
		return err
	}
	defer release()
	kind := kindRequest
	switch {
	case x.protocol != "":
		kind = kindUpgrade
		h.upgraded.Add(1)
		defer h.upgraded.Done()
	case stream:
		kind = kindStream
	}
	h.open.WithLabelValues(kind).Inc()
	defer h.open.WithLabelValues(kind).Dec()
	if x.r.ContentLength > MaxBody {
		return tooLarge(MaxBody)
	}
	ctx, done := h.join(x, kind)
	defer done()
	if x.parsed.ReadsBody() {
		if err := h.readBody(ctx, x); err != nil {
			return err
		}
	}
	begun, err := h.Audit.Begin(x.r.Context(), x.record(audit.Started, nil))
	if err != nil {
		return err
	}
	x.begun = true
	durable := stream || x.parsed.Changes()
	var failure error
	completed := false
	// The proxy panics with http.ErrAbortHandler if a response cannot be completed.
	defer func() {
		if !completed {
			failure = x.incomplete(ctx)
		}
		if x.status != 0 {
			h.requests.WithLabelValues(outcomeForwarded).Inc()
		}
		h.end(x, begun, durable, failure)
	}()
	if durable {
		if failure = begun.Durable(x.r.Context()); failure != nil {
			completed = true
			return failure
		}
	}
	if failure = context.Cause(ctx); failure == nil { // the session may have ended meanwhile
		send := func(ctx context.Context) error {
			h.proxy(x, backend, begun).ServeHTTP(x.w, x.r.WithContext(ctx))
			return x.failure
		}
		switch {
		case x.protocol != "":
			failure = h.upgrade(ctx, x, backend)
		case x.content != nil:
			failure = h.sendRecorded(ctx, x, send)
		default:
			failure = send(ctx)
		}
	}
	completed = true
	if cause := context.Cause(ctx); failure != nil && cause != nil {
		failure = cause
	}
	return failure
}

// limit returns the kind of requests that the request counts as.
func (x *exchange) limit() session.Kind {
	switch {
	case x.parsed.Verb == "watch":
		return session.Watch
	case x.parsed.Follows:
		return session.Stream
	}
	return session.Request
}

// incomplete returns why a response was not completed: nil if the client has closed it, for example a watch.
func (x *exchange) incomplete(ctx context.Context) error {
	switch {
	case x.r.Context().Err() != nil && x.status != 0:
		return nil
	case context.Cause(ctx) != nil:
		return context.Cause(ctx)
	}
	return apierror.New(apierror.Unavailable, "The API server has not completed its response.")
}

// end stores the record with the outcome of a request. The client of a read does not wait for that.
func (h *Handler) end(x *exchange, begun audit.Action, wait bool, failure error) {
	record := x.record(x.outcome(failure), failure)
	store := func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(x.r.Context()), recordTimeout)
		defer cancel()
		if err := begun.End(ctx, record); err != nil {
			// The record of the beginning is in the audit, and gets the outcome Unknown later.
			h.Log.Error("the outcome of a request is not in the audit", logkey.RequestID, x.id, logkey.Error, err)
		}
	}
	if wait {
		store()
		return
	}
	h.recording.Go(store)
}

// Wait waits until all upgraded connections have ended and the outcomes of all requests are stored. It must be called after EndStreams and the
// last request.
func (h *Handler) Wait() {
	h.upgraded.Wait()
	h.recording.Wait()
}

// join returns a context that ends with the client, the session and, for a stream or an upgraded connection, the process. When it ends, neither a client that does
// not read nor one that does not send delays the end of the response. done must be called before the handler returns.
func (h *Handler) join(x *exchange, kind string) (ctx context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(x.r.Context())
	follow := func(other context.Context) (end func()) {
		interrupted := make(chan struct{})
		stop := context.AfterFunc(other, func() {
			defer close(interrupted)
			cancel(context.Cause(other))
			control := http.NewResponseController(x.w)
			now := time.Now()
			_ = errors.Join(control.SetReadDeadline(now), control.SetWriteDeadline(now.Add(writeGrace))) // the connection may be closed
			x.interrupted.Store(true)
		})
		return func() {
			if !stop() {
				<-interrupted // it must not touch the connection's next request
			}
		}
	}
	ends := []func(){follow(x.session.Context())}
	switch kind {
	case kindStream:
		ends = append(ends, follow(h.stopping))
	case kindUpgrade:
		ends = append(ends, follow(h.drained))
	}
	return ctx, func() {
		for _, end := range ends {
			end()
		}
		cancel(nil)
	}
}

// writeGrace is the time for the error response after the end of a session.
const writeGrace = 250 * time.Millisecond

// forwarded are the headers that API servers get from clients. They identify nobody: the certificate or the token of the session does.
var forwarded = []string{"Accept", "Accept-Encoding", "Accept-Language", "Cache-Control", "Content-Type", "If-Match", "If-Modified-Since", "If-None-Match", "If-Unmodified-Since",
	"Kubectl-Command", "Kubectl-Session", "Traceparent", "Tracestate", "User-Agent"}

// auditID is the header with the ID of the event in the audit log of the API server. It is the ID of the request, so that both audits can be
// compared.
const auditID = "Audit-Id"

// forwardedHeaders returns the headers for the API server.
func (x *exchange) forwardedHeaders(backend *session.Backend) http.Header {
	headers := make(http.Header, len(forwarded)+2)
	for _, name := range forwarded {
		if values := x.r.Header[name]; len(values) > 0 {
			headers[name] = values
		}
	}
	headers.Set(auditID, x.id)
	if backend.Token != "" {
		headers.Set("Authorization", "Bearer "+backend.Token)
	}
	return headers
}

func (h *Handler) proxy(x *exchange, backend *session.Backend, begun audit.Action) http.Handler {
	return &httputil.ReverseProxy{
		Transport: backend.Transport, FlushInterval: flushAtOnce, ErrorLog: slog.NewLogLogger(h.Log.Handler(), slog.LevelDebug),
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.Header = x.forwardedHeaders(backend)
			if x.change != nil { // the gateway reads the response
				p.Out.Header.Del("Accept-Encoding")
				p.Out.Header.Set("Accept", "application/json")
			}
			p.Out.URL.Scheme, p.Out.URL.Host, p.Out.Host = backend.URL.Scheme, backend.URL.Host, backend.URL.Host
			p.Out.URL.Path, p.Out.URL.RawPath, p.Out.URL.RawQuery = x.parsed.Path, x.path, p.In.URL.RawQuery
			p.Out.Trailer = nil
			if p.Out.Body != nil && p.Out.Body != http.NoBody {
				p.Out.Body = http.MaxBytesReader(x.w, p.Out.Body, MaxBody)
			}
		},
		ModifyResponse: func(response *http.Response) error {
			switch code := response.StatusCode; {
			case code == http.StatusSwitchingProtocols:
				return errors.New("the API server changes the protocol, which nobody asked for")
			case isRedirect(code):
				return errRedirect
			}
			if x.change != nil {
				if err := x.readChanged(response); err != nil {
					return err
				}
			}
			if err := begun.Durable(response.Request.Context()); err != nil {
				return err
			}
			x.status = response.StatusCode
			for _, name := range []string{"Set-Cookie", "Alt-Svc", "Strict-Transport-Security"} {
				response.Header.Del(name)
			}
			// What customers' pods respond through a proxy must not act in a browser as a page of the gateway.
			response.Header.Set("Content-Security-Policy", "sandbox")
			response.Header.Set("X-Content-Type-Options", "nosniff")
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) { x.failure = unavailable(err) },
	}
}

// errRedirect is the failure of a request that is redirected. API servers do not redirect, but those that customers aggregate and pods behind
// a proxy may. Clients would send the engineer's token there.
var errRedirect = apierror.New(apierror.Unavailable, "The API server redirects the request, which the session gateway does not permit.")

func isRedirect(code int) bool {
	return code >= http.StatusMultipleChoices && code < http.StatusBadRequest && code != http.StatusNotModified
}

// unavailable returns the error for a request that the API server has not answered.
func unavailable(err error) error {
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return tooLarge(large.Limit)
	}
	var known *apierror.Error
	if errors.As(err, &known) {
		return known
	}
	return apierror.New(apierror.Unavailable, "The API server of the cluster does not respond, or its certificate is not that of the cluster.").WithRetryAfter(time.Second).WithCause(err)
}

func tooLarge(limit int64) error {
	return apierror.New(apierror.InvalidResource, "The body of the request is larger than %d bytes, which is the limit for this request.", limit)
}

// outcome returns the outcome of a request for the audit.
func (x *exchange) outcome(failure error) string {
	switch {
	case failure != nil:
		return audit.Failed
	case x.status == http.StatusUnauthorized || x.status == http.StatusForbidden:
		return audit.Refused
	case x.status >= http.StatusBadRequest:
		return audit.Failed
	}
	return audit.Succeeded
}

// The actions of the records of refused requests of which no more is known. They do not depend on the request, so that whoever is refused
// does not use up the kinds of refusals that are counted separately.
const (
	actionAuthenticate = "authenticate"
	actionUse          = "accessSessions.use"
)

// record returns the audit record of a request. It contains no body, no query and no token.
func (x *exchange) record(outcome string, failure error) audit.Record {
	r := audit.Record{Person: audit.Person{Name: x.caller.Name, ObjectID: x.caller.ObjectID, TenantID: x.caller.TenantID}, Action: actionUse,
		Outcome: outcome, Request: x.id}
	if x.caller.ObjectID == "" {
		r.Action = actionAuthenticate
	}
	if x.caller.AppID != "" {
		r.Peer = "app:" + x.caller.AppID
	}
	if s := x.session; s != nil {
		s.Describe(&r)
	}
	if p := x.parsed; p != nil {
		r.Action, r.Object.Kind, r.Object.ID = "kubernetes."+p.Verb, p.Kind(), p.Object()
	}
	switch {
	case failure != nil:
		r.Code = apierror.KindOf(failure).ARMCode()
	case outcome == audit.Failed || outcome == audit.Refused:
		r.Code = strconv.Itoa(x.status)
	}
	return r
}

// fail sends an error in a form that kubectl prints: a Status of Kubernetes, or plain text.
func (h *Handler) fail(x *exchange, failure error) {
	e := apierror.As(failure)
	message := e.Message
	outcome := outcomeFailed
	switch {
	case x.begun:
		h.Log.InfoContext(x.r.Context(), "a request of an access session was not completed", logkey.RequestID, x.id, logkey.Error, failure)
	case slices.Contains([]apierror.Kind{apierror.Unauthenticated, apierror.PermissionDenied, apierror.Invalid, apierror.NotFound}, e.Kind):
		outcome = outcomeRefused
		record := x.record(audit.Refused, failure)
		h.Refusals.Refused(x.r.Context(), record)
		h.Log.InfoContext(x.r.Context(), "audit", logkey.Record, "audit", logkey.Actor, record.Person.Name, logkey.ObjectID, record.Person.ObjectID, logkey.Action, record.Action,
			logkey.Kind, record.Object.Kind, logkey.ClusterUID, record.Object.Cluster, logkey.Shard, record.Object.Shard, logkey.Outcome, record.Outcome, logkey.RequestID, x.id)
	case e.Kind == apierror.Internal:
		message = "Internal error of the session gateway."
		h.Log.ErrorContext(x.r.Context(), "a request of an access session failed", logkey.RequestID, x.id, logkey.Error, failure)
	default:
		h.Log.InfoContext(x.r.Context(), "a request of an access session was not completed", logkey.RequestID, x.id, logkey.Error, failure)
	}
	h.requests.WithLabelValues(outcome).Inc()
	if x.switched {
		return // the client has the reason in a close frame
	}
	if x.status != 0 {
		// The header was sent. The client must not take the response for a complete one.
		panic(http.ErrAbortHandler)
	}
	status := e.Kind.HTTPStatus()
	if x.interrupted.Load() && x.r.ProtoMajor == 1 {
		x.w.Header().Set("Connection", "close")
	}
	if challenge := authn.Challenge(failure); challenge != "" {
		x.w.Header().Set("WWW-Authenticate", challenge)
	}
	x.w.Header().Set("Cache-Control", "no-store")
	details := &metav1.StatusDetails{RetryAfterSeconds: int32(apierror.RetryAfterSeconds(e.RetryAfter))}
	apierror.SetRetryAfter(x.w.Header(), e.RetryAfter)
	if policy.IsDiscovery(x.path) {
		// The first requests of kubectl. It prints the text of their errors, but not the message of a Status.
		x.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		x.w.Header().Set("X-Content-Type-Options", "nosniff")
		x.w.WriteHeader(status)
		_, _ = x.w.Write([]byte(message + "\n"))
		return
	}
	content, _ := json.Marshal(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Message: message, Reason: reasonOf(status),
		Details: details, Code: int32(status)}) // strings and numbers
	x.w.Header().Set("Content-Type", "application/json")
	x.w.WriteHeader(status)
	_, _ = x.w.Write(append(content, '\n'))
}

// reasonOf returns the reason of an HTTP status in the API of Kubernetes.
func reasonOf(status int) metav1.StatusReason {
	switch status {
	case http.StatusUnauthorized:
		return metav1.StatusReasonUnauthorized
	case http.StatusForbidden:
		return metav1.StatusReasonForbidden
	case http.StatusNotFound:
		return metav1.StatusReasonNotFound
	case http.StatusBadRequest:
		return metav1.StatusReasonBadRequest
	case http.StatusTooManyRequests:
		return metav1.StatusReasonTooManyRequests
	case http.StatusServiceUnavailable:
		return metav1.StatusReasonServiceUnavailable
	}
	return metav1.StatusReasonUnknown
}
