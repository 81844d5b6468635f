package database

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/hcpmesh/hcpmesh/api/armheader"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// The database and its containers.
const (
	databaseName       = "hcp"
	resourcesContainer = "Resources"
	billingContainer   = "Billing"
	leasesContainer    = "Leases"
)

// Back-off between attempts of one call: doubling, with jitter, from first to most.
const (
	firstBackoff = 10 * time.Millisecond
	mostBackoff  = time.Second
)

// connection makes requests. azcosmos keeps the failure of its very first request, reading the account, for five
// minutes; a client that has never reached the account is therefore thrown away after a failure.
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
	// reached is set once the account has answered anything.
	reached atomic.Bool
}

// Open prepares a connection. It does not wait for Cosmos DB to answer; EnsureSchema does.
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

// Ping asks Cosmos DB for the database; for readiness checks.
func (db *DB) Ping(ctx context.Context) error {
	used := db.connection.current.Load()
	_, err := used.database.Read(ctx, nil)
	db.connection.note(used, err)
	if err != nil {
		return failure(err, "reading the database's properties")
	}
	return nil
}

func (c *connection) newClient() (*client, error) {
	credential, err := azcosmos.NewKeyCredential(c.options.Key)
	if err != nil {
		return nil, errors.New("--cosmos-key-file: the key is not base64")
	}
	account, err := azcosmos.NewClientWithKey(c.options.Endpoint, credential, &azcosmos.ClientOptions{
		ClientOptions: azcore.ClientOptions{
			Transport: transporter{c.options.Transport},
			// Retries are ours: only we know which writes may be sent again.
			Retry:     policy.RetryOptions{MaxRetries: -1},
			Telemetry: policy.TelemetryOptions{ApplicationID: "hcpmesh"},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("--cosmos-endpoint: %w", err)
	}
	made := &client{account: account}
	if made.database, err = account.NewDatabase(databaseName); err != nil {
		return nil, err
	}
	for name, container := range map[string]**azcosmos.ContainerClient{
		resourcesContainer: &made.resources, billingContainer: &made.billing, leasesContainer: &made.leases,
	} {
		if *container, err = made.database.NewContainer(name); err != nil {
			return nil, err
		}
	}
	return made, nil
}

type transporter struct{ http.RoundTripper }

func (t transporter) Do(request *http.Request) (*http.Response, error) {
	return t.RoundTrip(request)
}

// note learns from the outcome of a request whether the client works, and replaces one that never has.
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
	// Whichever is not used lets go of what all clients of one endpoint share: what nobody lets go of stays for ever.
	if c.current.CompareAndSwap(used, next) {
		used.account.Close()
	} else {
		next.account.Close()
	}
}

// do calls attempt until it succeeds, fails for good, or the budget is spent. It is for calls that may be repeated;
// Commit has its own loop.
func (c *connection) do(ctx context.Context, attempt func(ctx context.Context, client *client) error) error {
	backoff := newBackoff(c.options.RetryBudget)
	for {
		used := c.current.Load()
		err := c.once(ctx, used, attempt)
		if err == nil || !transient(err) || ctx.Err() != nil {
			return err
		}
		if !backoff.wait(ctx, err) {
			return err
		}
	}
}

func (c *connection) once(ctx context.Context, used *client, attempt func(ctx context.Context, client *client) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.options.RequestTimeout)
	defer cancel()
	err := attempt(ctx, used)
	c.note(used, err)
	return err
}

type backoff struct {
	deadline time.Time
	next     time.Duration
}

func newBackoff(budget time.Duration) *backoff {
	return &backoff{deadline: time.Now().Add(budget), next: firstBackoff}
}

// wait sleeps for what err asks for, or else for the next step. It reports whether another attempt is worth it.
func (b *backoff) wait(ctx context.Context, err error) bool {
	pause := b.next/2 + rand.N(b.next/2+1)
	b.next = min(2*b.next, mostBackoff)
	if asked := retryAfter(err); asked > 0 {
		pause = asked + rand.N(firstBackoff)
	}
	if time.Now().Add(pause).After(b.deadline) {
		return false
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// statusOf is the HTTP status that Cosmos DB answered with, or 0 when there was no answer.
func statusOf(err error) int {
	var response *azcore.ResponseError
	if errors.As(err, &response) {
		return response.StatusCode
	}
	return 0
}

// retryAfter is what a throttled answer asks to wait.
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
	switch statusOf(err) {
	case 0, http.StatusRequestTimeout, http.StatusGone, http.StatusTooManyRequests, statusRetryWith,
		http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// unsettled reports whether a write that got err may have happened all the same. Throttling (429), a conflict between
// transactions (449) and every refusal say that it has not.
func unsettled(err error) bool {
	status := statusOf(err)
	return transient(err) && status != http.StatusTooManyRequests && status != statusRetryWith
}

// failure turns an error of azcosmos into ours.
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
