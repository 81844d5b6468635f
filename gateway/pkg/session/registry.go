package session

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/gateway/pkg/grant"
	"github.com/hcpmesh/hcpmesh/gateway/pkg/tunnel"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/seal"
)

const (
	// MaxStaleness is the age of the last read of a source after which requests are refused: the gateway may not know that a session has ended.
	MaxStaleness = 15 * time.Second
	// feedOverlap is how long before the first list the registry reads changes from. The change feed has a resolution of a second.
	feedOverlap = 5 * time.Second
	// feedIdle is the longest pause between two reads of the feed, so that sessions end within a second.
	feedIdle = 250 * time.Millisecond
	// retryPause is the pause after the first list, or a write of a document, failed.
	retryPause = time.Second
	// maxRemembered is the number of ended sessions of which the reason is known.
	maxRemembered = 1024
	// recent is the age up to which a credential is kept although its session was not read yet. A certificate lasts 15 minutes.
	recent = time.Hour
	// minRemove is the number of credentials up to which old ones are kept.
	minRemove = 256
	// handshakeTimeout and headerTimeout limit the TLS handshake with an API server, and the wait for the header of a response.
	handshakeTimeout = 10 * time.Second
	headerTimeout    = 70 * time.Second // API servers end requests after 60 s
	// writer is who ends sessions in their documents.
	writer = "gateway-access"
)

// Options are the options of a Registry.
type Options struct {
	Database *database.DB
	Fleet    clusterservicev1.ClusterServiceClient
	// Keys opens the private keys of sessions.
	Keys *seal.PrivateKeys
	// Grants requests the tokens of sessions for management clusters, and ServiceCluster those of sessions for the service cluster. nil means that there are
	// no such sessions.
	Grants         Grants
	ServiceCluster ServiceClusterGrants
	// Dial connects to API servers.
	Dial func(ctx context.Context, target DialTarget) (net.Conn, error)
	// MaxBytes is the number of bytes that the upgraded connections of a session transfer; 0 means the constant.
	MaxBytes int64
	// Audit gets the removals of what sessions have created, and what outlives them.
	Audit audit.Recorder
	// Clock is that of the ends of sessions and of the age of reads; nil means the real one.
	Clock   clock.WithDelayedExecution
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Registry is the set of open sessions. Run fills it. It is safe for concurrent use.
type Registry struct {
	options  Options
	follower *clusterservice.Follower
	gauge    *prometheus.GaugeVec
	forged   *prometheus.CounterVec
	objects  *prometheus.CounterVec
	// changed is signaled when a document must be written.
	changed chan struct{}

	mu sync.Mutex
	// read is the time of the last read of the feed of documents; zero before the first.
	read        time.Time
	entries     map[string]*entry
	credentials map[string]*credential
	clusters    map[string]*cluster
	// known is set when all credentials and clusters were read. unseen are those that a watch from the beginning has not sent yet.
	known  bool
	unseen map[string]bool
	// removeAt is the number of credentials at which removeOld removes some.
	removeAt int
	// ended has the reasons of ended sessions, for the responses to their owners.
	ended map[string]string
	// refused has the forged sessions until they can have no valid credential. Other versions of their documents do not open them.
	refused map[string]time.Time
	// writes are the changes of documents that are not written yet.
	writes map[string]write
	// requests are those for tokens.
	requests sync.WaitGroup
	// removals remove the access that ended sessions have given, until removing ends.
	removals       sync.WaitGroup
	removing       context.Context
	cancelRemovals context.CancelFunc
	// orphans are the ended sessions of which an object has no outcome. stopped is set when there are no more removals to begin.
	orphans map[string]clock.Timer
	stopped bool
}

// entry is a session with what it was made of.
type entry struct {
	// key is where the document is stored, whatever it contains.
	key      database.Key
	document database.AccessSessionDocument
	// session is that of the first version of the document.
	session *Session
	timer   clock.Timer
	// target is what the session's backend connects to.
	target target
	// requesting is set while the token of a session is requested, and grant when it was issued.
	requesting bool
	grant      *grant.Grant
}

// target identifies the connections of a backend.
type target struct {
	fingerprint string
	endpoint
}

// write is a change of a document: to the state Ended with a reason, or to Ready.
type write struct {
	key         database.Key
	end         string
	fingerprint string
	expiration  time.Time
	at          time.Time
}

// NewRegistry returns an empty Registry. It registers its metrics.
func NewRegistry(options Options) *Registry {
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	options.MaxBytes = cmp.Or(options.MaxBytes, MaxBytes)
	r := &Registry{options: options, changed: make(chan struct{}, 1), entries: map[string]*entry{}, credentials: map[string]*credential{}, clusters: map[string]*cluster{},
		unseen: map[string]bool{}, ended: map[string]string{}, refused: map[string]time.Time{}, writes: map[string]write{}, orphans: map[string]clock.Timer{},
		gauge: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "gateway_access_sessions", Help: "Open access sessions by state: preparing or ready."}, []string{"state"}),
		forged: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "gateway_access_sessions_forged_total",
			Help: "Access sessions that ended because their document was forged, by reason: changed (a field that never changes) or unverified (the credential or the token is for another session)."}, []string{"reason"}),
		objects: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "gateway_access_objects_total",
			Help: "Objects that give access and that access sessions have created or changed, at the end of the session by outcome: removed, or left (it may exist)."}, []string{"outcome"})}
	r.removing, r.cancelRemovals = context.WithCancel(context.Background())
	r.follower = clusterservice.NewFollower(options.Fleet, r, options.Log)
	options.Metrics.MustRegister(r.gauge, r.forged, r.objects)
	for _, outcome := range []database.AccessOutcome{database.AccessRemoved, database.AccessLeft} {
		r.objects.WithLabelValues(strings.ToLower(string(outcome)))
	}
	for _, reason := range []string{forgedChanged, forgedUnverified} {
		r.forged.WithLabelValues(reason)
	}
	r.count()
	return r
}

// Run follows both sources until ctx ends. Then it ends all sessions on this replica, and removes the access that they gave here. The states in their documents do
// not change.
func (r *Registry) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { r.follower.Run(ctx) })
	wg.Go(func() { r.followDocuments(ctx) })
	wg.Go(func() { r.writeDocuments(ctx) })
	wg.Wait()
	r.mu.Lock()
	r.stopped = true
	for id, e := range r.entries {
		r.forget(id, e, "the gateway stops")
	}
	for _, timer := range r.orphans {
		timer.Stop()
	}
	r.mu.Unlock()
	limit := time.AfterFunc(stopTime, r.cancelRemovals)
	defer limit.Stop()
	r.requests.Wait()
	r.removals.Wait()
}

// Fresh returns an error if the registry may not know the end of a session.
func (r *Registry) Fresh() error {
	now := r.options.Clock.Now()
	if since := r.follower.Stale(); !since.IsZero() && now.Sub(since) > MaxStaleness {
		return apierror.New(apierror.Unavailable, "The session gateway cannot read from Cluster Service whether sessions were revoked.").WithRetryAfter(retryPause)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.known || now.Sub(r.read) > MaxStaleness {
		return apierror.New(apierror.Unavailable, "The session gateway cannot read whether sessions have ended.").WithRetryAfter(retryPause)
	}
	return nil
}

// ReadyCosmos and ReadyFleet are readiness checks of the two sources.
func (r *Registry) ReadyCosmos(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := r.options.Clock.Now(); now.Sub(r.read) > MaxStaleness {
		return fmt.Errorf("the change feed of sessions was last read at %s", r.read.Format(time.RFC3339))
	}
	return nil
}

// ReadyFleet returns an error until the watch of Cluster Service has caught up, and while it is broken.
func (r *Registry) ReadyFleet(ctx context.Context) error { return r.follower.Ready(ctx) }

// Get returns an open session. ended is the reason of the end of a session that has ended; both are empty for an unknown session.
func (r *Registry) Get(id string) (open *Session, ended string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.entries[id]; e != nil {
		return e.session, ""
	}
	return nil, r.ended[id]
}

// followDocuments lists the open sessions and follows their changes.
func (r *Registry) followDocuments(ctx context.Context) {
	for {
		since := r.options.Clock.Now().Add(-feedOverlap)
		err := r.options.Database.EachAccessSession(ctx, database.AccessSessionFilter{OpenOnly: true, OrUnresolved: true}, func(item *database.Item[database.AccessSessionDocument]) error {
			r.setDocument(item)
			return nil
		})
		if err == nil {
			r.noteRead()
			feed := database.FeedOptions{IdleInterval: feedIdle, Log: r.options.Log, Read: r.noteRead}
			_ = r.options.Database.TailAccessSessions(ctx, since, feed, r.takeChanges) // returns when ctx ends
			return
		}
		if ctx.Err() == nil {
			r.options.Log.WarnContext(ctx, "listing access sessions failed; retrying", logkey.Error, err)
		}
		if backoff.Sleep(ctx, retryPause) != nil {
			return
		}
	}
}

func (r *Registry) noteRead() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read = r.options.Clock.Now()
}

// takeChanges handles changes of the container. Admin wrote no document that cannot be decoded.
func (r *Registry) takeChanges(ctx context.Context, changes []database.Change) error {
	for _, change := range changes {
		if change.Kind != database.AccessSessionKind || change.Removed {
			continue
		}
		item, err := database.DecodeChange(r.options.Database.AccessSessions(), change)
		if err != nil {
			r.options.Log.ErrorContext(ctx, "an access session cannot be decoded; ignoring", logkey.Error, err)
			continue
		}
		r.setDocument(item)
	}
	return nil
}

// setDocument handles a version of a document. The first one defines the session, which a credential or a token must confirm before it is ready. Later versions
// contribute only what the programs of the region change.
func (r *Registry) setDocument(item *database.Item[database.AccessSessionDocument]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	document := &item.Value
	id := document.SessionID
	e := r.entries[id]
	switch {
	case document.State == database.AccessSessionEnded:
		delete(r.writes, id)
		r.forget(id, e, document.EndReason)
		r.awaitOutcomes(id, item.Key, document)
		return
	case r.ended[id] != "", !r.refused[id].IsZero():
		return // an older version than what ended it here, or a forged one
	case e == nil:
		e = &entry{key: item.Key, session: newSession(document, r.options.MaxBytes)}
		r.entries[id] = e
	default:
		if fields := changedFields(&e.document, document); len(fields) > 0 {
			r.refuse(id, e, forgedChanged, "its document was changed: "+strings.Join(fields, ", "))
			return
		}
	}
	e.document = *document
	r.judge(id, e)
}

// judge applies the verdict about a session.
func (r *Registry) judge(id string, e *entry) {
	now := r.options.Clock.Now()
	v := r.verdict(id, e, now)
	switch {
	case v.forged:
		r.refuse(id, e, forgedUnverified, v.end)
		return
	case v.end != "":
		r.end(id, e, v.end)
		return
	}
	if !v.expiration.IsZero() {
		e.session.expiration.Store(&v.expiration)
		if limit := v.expiration.Add(-removalTime); e.session.changes.any() && limit.Before(v.deadline) {
			v.deadline = limit
		}
		if !now.Before(v.deadline) {
			r.end(id, e, "its credential expires, with which the gateway removes the access that it gave")
			return
		}
	}
	e.session.deadline.Store(&v.deadline)
	if e.timer != nil {
		e.timer.Stop()
	}
	e.timer = r.options.Clock.AfterFunc(v.deadline.Sub(now), func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.entries[id] == e {
			r.judge(id, e)
		}
	})
	if v.endpoint.url == "" {
		r.requestGrant(id, e)
		r.count()
		return
	}
	if target := (target{v.fingerprint, v.endpoint}); target != e.target {
		backend, err := r.newBackend(v)
		if err != nil {
			r.options.Log.Error("an API server cannot be reached through its endpoint", logkey.ClusterUID, e.document.ClusterUID, logkey.Shard, e.document.Shard, logkey.Error, err)
			return
		}
		e.target = target
		e.session.setBackend(backend)
		r.options.Log.Info("an access session is ready", logkey.OperationID, id, logkey.ClusterUID, e.document.ClusterUID, logkey.Shard, e.document.Shard, logkey.Fingerprint, v.fingerprint)
	}
	if e.document.State != database.AccessSessionReady {
		r.write(id, write{key: e.key, fingerprint: v.fingerprint, expiration: v.deadline, at: now})
	}
	r.count()
}

// verdict returns the state that a session must have.
func (r *Registry) verdict(id string, e *entry, now time.Time) verdict {
	if e.session.Shard != "" {
		return judgeToken(e.session, &e.document, e.grant, now)
	}
	return judge(e.session, &e.document, facts{credential: r.credentials[id], cluster: r.clusters[e.session.ClusterUID], known: r.known, now: now}, func(sealed []byte) ([]byte, error) {
		return r.options.Keys.Open(e.document.KeyPurpose(), sealed)
	})
}

// end ends a session on this replica and in its document.
func (r *Registry) end(id string, e *entry, reason string) {
	r.write(id, write{key: e.key, end: reason, at: r.options.Clock.Now()})
	r.forget(id, e, reason)
}

func (r *Registry) newBackend(v verdict) (*Backend, error) {
	server, err := url.Parse(v.endpoint.url)
	if err != nil || server.Scheme != "https" || server.Host == "" {
		return nil, fmt.Errorf("the URL %q is not an https URL", v.endpoint.url)
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM([]byte(v.endpoint.authorities)) {
		return nil, fmt.Errorf("the authorities of %s contain no certificate", v.endpoint.url)
	}
	target := DialTarget{Address: net.JoinHostPort(server.Hostname(), cmp.Or(server.Port(), "443")), ManagementCluster: v.endpoint.managementCluster, ClusterID: v.endpoint.clusterID,
		Restricted: v.endpoint.restricted}
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: authorities}
	if v.certificate != nil {
		config.Certificates = []tls.Certificate{*v.certificate}
	}
	if target.ClusterID == tunnel.APIServer {
		target.Address = "" // the address is one inside the management cluster
	}
	connect := func(ctx context.Context) (net.Conn, error) { return r.options.Dial(ctx, target) }
	return &Backend{URL: &url.URL{Scheme: "https", Host: server.Host}, Token: v.token, Dial: dialer(connect, server.Hostname(), config.Clone()), Transport: &http.Transport{
		DialContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return connect(ctx) },
		TLSHandshakeTimeout: handshakeTimeout, ResponseHeaderTimeout: headerTimeout, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true,
		// The client's choice of an encoding is forwarded.
		DisableCompression: true,
		TLSClientConfig:    config,
	}}, nil
}

// dialer returns a function that opens connections for HTTP/1.1: HTTP/2 has no upgrades.
func dialer(connect func(ctx context.Context) (net.Conn, error), host string, config *tls.Config) func(ctx context.Context) (net.Conn, error) {
	config.ServerName, config.NextProtos = host, []string{"http/1.1"}
	return func(ctx context.Context) (net.Conn, error) {
		plain, err := connect(ctx)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
		defer cancel()
		secure := tls.Client(plain, config)
		if err := secure.HandshakeContext(ctx); err != nil {
			return nil, errors.Join(err, plain.Close())
		}
		return secure, nil
	}
}

// forget ends a session on this replica and remembers the reason.
func (r *Registry) forget(id string, e *entry, reason string) {
	if e != nil {
		if e.timer != nil {
			e.timer.Stop()
		}
		backend := e.session.Backend()
		e.session.end(reason)
		r.removeAccess(id, e, backend)
		delete(r.entries, id)
		r.options.Log.Info("an access session has ended", logkey.OperationID, id, logkey.ClusterUID, e.document.ClusterUID, logkey.Shard, e.document.Shard, logkey.Message, reason)
	}
	for known := range r.ended {
		if len(r.ended) < maxRemembered {
			break
		}
		delete(r.ended, known)
	}
	r.ended[id] = reason
	r.count()
}

func (r *Registry) count() {
	ready := 0
	for _, e := range r.entries {
		if e.session.Backend() != nil {
			ready++
		}
	}
	r.gauge.WithLabelValues("ready").Set(float64(ready))
	r.gauge.WithLabelValues("preparing").Set(float64(len(r.entries) - ready))
}

// write notes a change of a document. The number of changes is at most that of the open sessions.
func (r *Registry) write(id string, w write) {
	r.writes[id] = w
	select {
	case r.changed <- struct{}{}:
	default: // a signal waits already
	}
}

// writeDocuments writes changes until ctx ends. Replicas decide the same: the first one writes, and the others find the change.
func (r *Registry) writeDocuments(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.changed:
		}
		r.mu.Lock()
		pending := r.writes
		r.writes = map[string]write{}
		r.mu.Unlock()
		failed := false
		for id, w := range pending {
			_, err := r.options.Database.ChangeAccessSession(ctx, w.key, w.apply)
			if err == nil {
				continue
			}
			failed = true
			if ctx.Err() == nil {
				r.options.Log.WarnContext(ctx, "writing the state of an access session failed; retrying", logkey.OperationID, id, logkey.Error, err)
			}
			r.mu.Lock()
			if _, newer := r.writes[id]; !newer {
				r.write(id, w)
			}
			r.mu.Unlock()
		}
		if failed && backoff.Sleep(ctx, retryPause) != nil {
			return
		}
	}
}

// apply changes a document.
func (w write) apply(document *database.AccessSessionDocument) (changed bool, err error) {
	if w.end != "" {
		return document.End(writer, w.end, w.at.UTC()), nil
	}
	if document.State != database.AccessSessionRequested {
		return false, nil
	}
	ready, expiration := w.at.UTC(), w.expiration.UTC()
	document.State, document.ReadyTime, document.ExpirationTime, document.CertificateFingerprint = database.AccessSessionReady, &ready, &expiration, w.fingerprint
	return true, nil
}

// Changed implements clusterservice.FollowHandler.
func (r *Registry) Changed(message *clusterservicev1.WatchResponse) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch event := message.GetEvent().(type) {
	case *clusterservicev1.WatchResponse_Cluster:
		r.setCluster(event.Cluster)
	case *clusterservicev1.WatchResponse_BreakGlassCredential:
		r.setCredential(event.BreakGlassCredential)
	}
}

func (r *Registry) setCluster(c *clusterservicev1.Cluster) {
	uid, s := strings.ToLower(c.GetUid()), c.GetStatus()
	delete(r.unseen, uid)
	if s.GetPhase() == clusterservicev1.ClusterPhase_CLUSTER_PHASE_DELETED {
		delete(r.clusters, uid)
	} else {
		api := c.GetSpec().GetApi()
		r.clusters[uid] = &cluster{deleting: c.GetDeleteTime() != nil, endpoint: endpoint{url: s.GetApiUrl(), authorities: r.shared(uid, s.GetServingCertificateAuthority()),
			managementCluster: s.GetProvisionShard(), clusterID: s.GetClusterId(),
			restricted: api.GetVisibility() == clusterservicev1.Visibility_VISIBILITY_PRIVATE || len(api.GetAuthorizedCidrs()) > 0}}
	}
	for id, e := range r.entries {
		if e.session.ClusterUID == uid {
			r.judge(id, e)
		}
	}
}

// shared returns the known authorities of a cluster if they are the same. Most changes of a cluster do not change them.
func (r *Registry) shared(uid, authorities string) string {
	if known := r.clusters[uid]; known != nil && known.endpoint.authorities == authorities {
		return known.endpoint.authorities
	}
	return strings.Clone(authorities)
}

func (r *Registry) setCredential(c *clusterservicev1.BreakGlassCredential) {
	uid, spec, status := strings.ToLower(c.GetUid()), c.GetSpec(), c.GetStatus()
	delete(r.unseen, uid)
	if spec.GetClass() != clusterservicev1.BreakGlassClass_BREAK_GLASS_CLASS_SRE {
		return
	}
	e := r.entries[uid]
	known := &credential{cluster: strings.ToLower(c.GetClusterUid()), elevation: spec.GetElevation(), level: spec.GetLevel(), state: status.GetState(),
		certificate: status.GetCertificate(), elevationEnd: spec.GetNotAfter().AsTime()}
	switch known.state {
	case clusterservicev1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_EXPIRED, clusterservicev1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_REVOKED,
		clusterservicev1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_FAILED, clusterservicev1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_CANCELED:
		known.certificate = ""
		if e == nil && r.options.Clock.Now().Sub(c.GetCreateTime().AsTime()) > recent {
			// Its session has ended. Most credentials of a region are final.
			delete(r.credentials, uid)
			return
		}
	}
	known.created = c.GetCreateTime().AsTime()
	r.credentials[uid] = known
	r.removeOld()
	if e != nil {
		r.judge(uid, e)
	}
}

// removeOld removes credentials without a session that are too old to have one, whenever their number has doubled.
func (r *Registry) removeOld() {
	if len(r.credentials) < r.removeAt {
		return
	}
	oldest := r.options.Clock.Now().Add(-recent)
	for uid, c := range r.credentials {
		if r.entries[uid] == nil && c.created.Before(oldest) {
			delete(r.credentials, uid)
		}
	}
	r.removeAt = max(minRemove, 2*len(r.credentials))
}

// Restarted implements clusterservice.FollowHandler.
func (r *Registry) Restarted() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unseen = map[string]bool{}
	for uid := range r.clusters {
		r.unseen[uid] = true
	}
	for uid := range r.credentials {
		r.unseen[uid] = true
	}
}

// CaughtUp implements clusterservice.FollowHandler.
func (r *Registry) CaughtUp() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known && len(r.unseen) == 0 {
		return
	}
	for uid := range r.unseen {
		delete(r.clusters, uid)
		delete(r.credentials, uid)
	}
	r.unseen, r.known = nil, true
	for id, e := range r.entries {
		r.judge(id, e)
	}
}
