package database

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/hcpmesh/hcpmesh/api/armheader"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
)

// The names of the database and its containers.
const (
	databaseName       = "hcp"
	resourcesContainer = "Resources"
	billingContainer   = "Billing"
	leasesContainer    = "Leases"
	adminContainer     = "Admin"
	journalContainer   = "Journal"
	sessionsContainer  = "Sessions"
	// accessSessionsContainer holds the access sessions of SREs. The name leaves Sessions for the sessions of browsers.
	accessSessionsContainer = "AccessSessions"
	egressLinksContainer    = "EgressLinks"
)

// The pauses between the attempts of one call.
const (
	minBackoff = 10 * time.Millisecond
	maxBackoff = time.Second
)

// connection sends requests. azcosmos caches a failure of its first request, which reads the account, for five minutes.
// Therefore a client that has never reached the account is replaced after a failure.
type connection struct {
	options Options
	current atomic.Pointer[client]
}

type client struct {
	account   *azcosmos.Client
	database  *azcosmos.DatabaseClient
	resources *azcosmos.ContainerClient
	billing   *azcosmos.ContainerClient
	leases    *azcosmos.ContainerClient
	admin     *azcosmos.ContainerClient
	journal   *azcosmos.ContainerClient
	sessions  *azcosmos.ContainerClient
	// accessSessions is the container of AccessSessions.
	accessSessions *azcosmos.ContainerClient
	// egressLinks is the container of EgressLinks.
	egressLinks *azcosmos.ContainerClient
	// reached is set after the first response from the account.
	reached atomic.Bool
}

// documents returns the container of a partition's documents: Admin for AdminPartition, Sessions for those of sessions of the portal,
// AccessSessions for those of clusters and of provision shards, EgressLinks for those of links, and Resources for subscriptions.
func (c *client) documents(partition string) *azcosmos.ContainerClient {
	switch {
	case partition == AdminPartition:
		return c.admin
	case strings.HasPrefix(partition, sessionPartition):
		return c.sessions
	case strings.HasPrefix(partition, accessSessionPartition), strings.HasPrefix(partition, accessShardPartition):
		return c.accessSessions
	case strings.HasPrefix(partition, egressLinkPartition):
		return c.egressLinks
	}
	return c.resources
}

// first returns the context of a request: until the account was reached, it contains itself, for transporter.
func (c *client) first(ctx context.Context) context.Context {
	if c.reached.Load() {
		return ctx
	}
	return context.WithValue(ctx, callerKey{}, ctx)
}

// Open returns a connection. It sends no request; use CheckSchema to wait for Cosmos DB.
func Open(_ context.Context, options Options) (*DB, error) {
	if err := options.complete(); err != nil {
		return nil, err
	}
	c := &connection{options: options}
	first, err := c.newClient()
	if err != nil {
		return nil, err
	}
	c.current.Store(first)
	return newDB(options, c), nil
}

// Close releases the connection's caches and idle connections.
func (db *DB) Close() {
	db.connection.current.Load().account.Close()
	if idle, ok := db.options.Transport.(interface{ CloseIdleConnections() }); ok {
		idle.CloseIdleConnections()
	}
}

// Ping reads the properties of the database. It is for readiness checks. If its context ends while azcosmos waits to repeat a request, the
// error also wraps that of the request, for example a refused connection.
func (db *DB) Ping(ctx context.Context) error {
	used := db.connection.current.Load()
	var failed atomic.Pointer[error]
	_, err := used.database.Read(context.WithValue(used.first(ctx), failedKey{}, &failed), nil)
	if last := failed.Load(); last != nil && err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w; the request before: %w", err, *last)
	}
	db.connection.note(used, err)
	if err != nil {
		return failure(err, "reading the database's properties")
	}
	return nil
}

func (c *connection) newClient() (*client, error) {
	options := &azcosmos.ClientOptions{
		ClientOptions: azcore.ClientOptions{
			Transport: transporter{c.options.Transport},
			// This package retries by itself, because it distinguishes the writes that may be repeated.
			Retry:     policy.RetryOptions{MaxRetries: -1},
			Telemetry: policy.TelemetryOptions{ApplicationID: "hcpmesh"},
		},
	}
	account, err := c.newAccount(options)
	if err != nil {
		return nil, fmt.Errorf("--cosmos-endpoint: %w", err)
	}
	made := &client{account: account}
	if made.database, err = account.NewDatabase(databaseName); err != nil {
		return nil, err
	}
	for name, container := range map[string]**azcosmos.ContainerClient{
		resourcesContainer: &made.resources, billingContainer: &made.billing, leasesContainer: &made.leases, adminContainer: &made.admin,
		journalContainer: &made.journal, sessionsContainer: &made.sessions, accessSessionsContainer: &made.accessSessions, egressLinksContainer: &made.egressLinks,
	} {
		if *container, err = made.database.NewContainer(name); err != nil {
			return nil, err
		}
	}
	return made, nil
}

// newAccount returns a client of the account with the configured credential.
func (c *connection) newAccount(options *azcosmos.ClientOptions) (*azcosmos.Client, error) {
	if c.options.Key == "" {
		return azcosmos.NewClient(c.options.Endpoint, tokenSource{c.options.Credential}, options)
	}
	credential, err := azcosmos.NewKeyCredential(c.options.Key)
	if err != nil {
		return nil, errors.New("the account's key is not base64")
	}
	return azcosmos.NewClientWithKey(c.options.Endpoint, credential, options)
}

type transporter struct{ http.RoundTripper }

// Do sends a request, and stores its error for Ping.
func (t transporter) Do(request *http.Request) (*http.Response, error) {
	response, err := t.send(request)
	if failed, ok := request.Context().Value(failedKey{}).(*atomic.Pointer[error]); ok && err != nil {
		failed.Store(&err)
	}
	return response, err
}

// send sends a request. A client's first request reads the account, for which azcosmos removes the caller's cancellation; send ends that
// request with the caller's context, and fails if the account's consistency level is not ConsistencyLevel.
func (t transporter) send(request *http.Request) (*http.Response, error) {
	caller, ok := request.Context().Value(callerKey{}).(context.Context)
	if !ok {
		return t.RoundTrip(request)
	}
	ctx, cancel := context.WithCancelCause(request.Context())
	stop := context.AfterFunc(caller, func() { cancel(caller.Err()) })
	response, err := t.RoundTrip(request.WithContext(ctx))
	if err == nil && isAccountRequest(request) {
		err = checkConsistency(response)
	}
	if err != nil {
		if stop(); caller.Err() != nil {
			err = caller.Err()
		}
		cancel(nil)
		return nil, err
	}
	response.Body = &callersBody{response.Body, func() { stop(); cancel(nil) }}
	return response, nil
}

// failedKey is the key of a pointer in which transporter stores the error of the last request that failed.
type failedKey struct{}

// callerKey is the key of the context of the call that made a client send its first requests.
type callerKey struct{}

// callersBody is the body of a response whose request ends with the caller's context.
type callersBody struct {
	io.ReadCloser
	release func()
}

// Close implements io.Closer.
func (b *callersBody) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}

// note records whether a request reached the account, and replaces a client that never has.
func (c *connection) note(used *client, err error) {
	if used.reached.Load() {
		return
	}
	switch statusOf(err) {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusConflict, http.StatusPreconditionFailed:
		err = nil
	}
	if err == nil {
		used.reached.Store(true)
		return
	}
	next, makeErr := c.newClient()
	if makeErr != nil {
		return
	}
	// Close the client that is not used: clients of one endpoint share caches, which only Close releases.
	if c.current.CompareAndSwap(used, next) {
		used.account.Close()
	} else {
		next.account.Close()
	}
}

// do calls attempt until it succeeds, fails permanently, or the retry budget is spent. It is for calls that may be
// repeated; Commit has its own loop.
func (c *connection) do(ctx context.Context, attempt func(ctx context.Context, client *client) error) error {
	retries := newRetries(c.options.RetryBudget)
	for {
		used := c.current.Load()
		err := c.once(ctx, used, attempt)
		if err == nil || !transient(err) || ctx.Err() != nil {
			return err
		}
		if !retries.wait(ctx, err) {
			return err
		}
	}
}

func (c *connection) once(ctx context.Context, used *client, attempt func(ctx context.Context, client *client) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.options.RequestTimeout)
	defer cancel()
	err := attempt(used.first(ctx), used)
	c.note(used, err)
	return err
}

// retries are the pauses of one call within its retry budget.
type retries struct {
	deadline time.Time
	pauses   *backoff.Backoff
}

func newRetries(budget time.Duration) *retries {
	return &retries{deadline: time.Now().Add(budget), pauses: backoff.New(minBackoff, maxBackoff)}
}

// wait sleeps for the time that err requests, or for the next back-off pause. It returns false if the budget does not
// allow another attempt or ctx ends.
func (r *retries) wait(ctx context.Context, err error) bool {
	pause := r.pauses.Next()
	if requested := retryAfter(err); requested > 0 {
		pause = requested + rand.N(minBackoff)
	}
	if time.Now().Add(pause).After(r.deadline) {
		return false
	}
	return backoff.Sleep(ctx, pause) == nil
}

// statusOf returns the HTTP status of Cosmos DB's response, or 0 if there was no response.
func statusOf(err error) int {
	var response *azcore.ResponseError
	if errors.As(err, &response) {
		return response.StatusCode
	}
	return 0
}

// retryAfter returns the pause that the response to a throttled request demands, or 0.
func retryAfter(err error) time.Duration {
	var response *azcore.ResponseError
	if !errors.As(err, &response) || response.RawResponse == nil {
		return 0
	}
	if ms, parseErr := strconv.ParseFloat(response.RawResponse.Header.Get(armheader.RetryAfterMS), 64); parseErr == nil {
		return time.Duration(ms * float64(time.Millisecond))
	}
	return 0
}

const statusRetryWith = 449

// transient reports whether the same request may succeed later.
func transient(err error) bool {
	var weak *weakAccountError
	if errors.As(err, &weak) {
		return false
	}
	switch statusOf(err) {
	case 0, http.StatusRequestTimeout, http.StatusGone, http.StatusTooManyRequests, statusRetryWith,
		http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// mayHaveCommitted reports whether a write that returned err may have been executed. Throttled writes (429), conflicts
// between transactions (449), rejected writes and writes without a token were not.
func mayHaveCommitted(err error) bool {
	status := statusOf(err)
	return transient(err) && !notSent(err) && status != http.StatusTooManyRequests && status != statusRetryWith
}

// failure converts an error of azcosmos into an error of this package.
func failure(err error, format string, args ...any) error {
	doing := fmt.Sprintf(format, args...)
	switch status := statusOf(err); {
	case status == http.StatusTooManyRequests:
		return apierror.New(apierror.Throttled, "The service is busy.").WithRetryAfter(max(retryAfter(err), time.Second)).WithCause(fmt.Errorf("%s: %w", doing, err))
	case transient(err):
		return apierror.New(apierror.Unavailable, "The service's store cannot be reached.").WithRetryAfter(2 * time.Second).WithCause(fmt.Errorf("%s: %w", doing, err))
	default:
		return fmt.Errorf("%s: %w", doing, err)
	}
}
