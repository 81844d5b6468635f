// Package emulator combines the emulated services of Azure in one handler: Resource Manager below /subscriptions and
// /providers, one Key Vault below /certificates and /secrets, the data plane of managed identities below /identity,
// and Blob Storage below the names of its accounts. The vault and the accounts also have the host names that they have in Azure.
//
// For each request it applies the injected faults, verifies the bearer token, and calls the service, which authorizes the caller by
// role assignments (package rbac). All data is in one
// file. A seed, applied at every start, contains the infrastructure of a region: its resource group, DNS zone and storage
// account.
package emulator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/entra"
	"github.com/hcpmesh/hcpmesh/internal/faults"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/arm"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/blob"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/rbac"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/store"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/vault"
)

// The names of the emulated services in faults and metrics.
const (
	ServiceARM   = "arm"
	ServiceVault = "vault"
	ServiceBlob  = "blob"
	// ServiceIdentity is the data plane of managed identities.
	ServiceIdentity = "identity"
	// ServiceIssuer is the issuer of certificates. It receives no requests; a fault for it makes the issuer reject a
	// certificate.
	ServiceIssuer = "issuer"
)

// Options configure an Emulator.
type Options struct {
	// DataDir contains the data. It is locked while in use.
	DataDir string
	// Tokens verifies the bearer tokens.
	Tokens *entra.Verifier
	// Tenant is the tenant in challenges to callers without a token; "" means common.
	Tenant string
	// OperationDelay is the duration of operations that take long in Azure; 0 completes them at once.
	OperationDelay time.Duration
	// AssumeCustomers creates the networks and identities of customers when they are first requested.
	AssumeCustomers bool
	// OwnSubscriptions are the subscriptions of the service, in which nothing is assumed.
	OwnSubscriptions []string
	Location         string
	// CertificateLifetime is the validity period of the vault's certificates and of the credentials of identities; 0 means that of their policy
	// and of Azure.
	CertificateLifetime time.Duration
	Seed                Seed
	// EnableFaults enables the control endpoints below /_emulator, which have no authentication.
	EnableFaults bool
	FaultSeed    uint64
	// Log receives the errors of background work; nil discards them.
	Log *slog.Logger
	Now func() time.Time
}

// Emulator is the HTTP handler. Its Run method must be running to complete operations.
type Emulator struct {
	// Observe, if set before the first request, is called after each response.
	Observe func(service, method string, status int, took time.Duration)

	options Options
	store   *store.Store
	arm     *arm.Server
	vault   *vault.Server
	blob    *blob.Server
	faults  *faults.Set
}

// Open opens or creates the data.
func Open(o Options) (*Emulator, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Location == "" {
		o.Location = "westus3"
	}
	opened, err := store.Open(filepath.Join(o.DataDir, "azure.db"))
	if err != nil {
		return nil, err
	}
	e := &Emulator{options: o, store: opened, faults: faults.New(faults.Azure, o.FaultSeed)}
	e.arm = arm.New(arm.Options{Store: opened, OperationDelay: o.OperationDelay, AssumeCustomers: o.AssumeCustomers, OwnSubscriptions: o.OwnSubscriptions, Location: o.Location,
		Roles: o.Seed.Roles, Assignments: o.Seed.Assignments, ResourceProviders: o.Seed.ResourceProviders, Authority: o.Tokens.Authority,
		CredentialLifetime: o.CertificateLifetime, Log: o.Log, Now: o.Now})
	e.vault = vault.New(vault.Options{Store: opened, OperationDelay: o.OperationDelay, Issuers: o.Seed.Issuers, Lifetime: o.CertificateLifetime,
		Reject: e.rejectCertificate, Access: e.arm, ID: o.Seed.Vault, Now: o.Now})
	e.blob = &blob.Server{Store: opened, Accounts: map[string]string{}, Created: e.arm.StorageAccount, Access: e.arm, Now: o.Now}
	if err := e.applySeed(o.Seed); err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	return e, nil
}

// Healthy returns nil if the emulator commits writes, or why not.
func (e *Emulator) Healthy(ctx context.Context) error { return e.store.Healthy(ctx) }

// Run completes operations when they are due, until ctx ends.
func (e *Emulator) Run(ctx context.Context) { e.arm.Run(ctx) }

// Close closes the data. No requests may be in progress.
func (e *Emulator) Close() error { return e.store.Close() }

// Faults returns the injected faults.
func (e *Emulator) Faults() *faults.Set { return e.faults }

// SetComputeLimits replaces the sizes and quotas of a subscription.
func (e *Emulator) SetComputeLimits(limits arm.ComputeLimits) error {
	return e.arm.SetComputeLimits(limits)
}

// ServeHTTP implements http.Handler.
func (e *Emulator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/_emulator/") {
		e.control(w, r)
		return
	}
	service, r, known := e.addressed(r)
	started := time.Now()
	recorder := &statusRecorder{ResponseWriter: w, status: http.StatusOK}
	defer func() {
		if e.Observe != nil {
			e.Observe(service, r.Method, recorder.status, time.Since(started))
		}
	}()
	if !known {
		writeError(recorder, service, http.StatusMisdirectedRequest, "MisdirectedRequest", "The emulator does not have the name "+r.Host+".")
		return
	}
	rule := e.faults.Next(faults.Request{Method: r.Method, Service: service, Path: r.URL.Path})
	if rule != nil {
		if wait := rule.Latency(); wait > 0 {
			_ = backoff.Sleep(r.Context(), wait)
		}
		switch {
		case rule.DropRequest:
			panic(http.ErrAbortHandler)
		case rule.DropResponse:
			e.serve(httptest.NewRecorder(), r, service)
			panic(http.ErrAbortHandler)
		case rule.Status != 0:
			e.writeFault(recorder, service, rule)
			return
		}
	}
	e.serve(recorder, r, service)
}

// service returns the name of the service for a path.
func (e *Emulator) service(path string) string {
	switch {
	case strings.HasPrefix(path, arm.CredentialsPath):
		return ServiceIdentity
	case strings.HasPrefix(path, "/certificates"), strings.HasPrefix(path, "/deletedcertificates"), strings.HasPrefix(path, "/secrets"), strings.HasPrefix(path, "/deletedsecrets"),
		strings.HasPrefix(path, "/keys"):
		return ServiceVault
	case e.blob.Serves(path):
		return ServiceBlob
	}
	return ServiceARM
}

// serve authenticates a request and calls its service, which authorizes the caller.
func (e *Emulator) serve(w http.ResponseWriter, r *http.Request, service string) {
	caller, ok := e.authenticate(w, r, service)
	if !ok {
		return
	}
	r = r.WithContext(rbac.NewContext(r.Context(), caller))
	switch service {
	case ServiceVault:
		e.vault.ServeHTTP(w, r)
	case ServiceBlob:
		e.blob.ServeHTTP(w, r)
	case ServiceIdentity:
		e.arm.ServeCredentials(w, r)
	default:
		e.arm.ServeHTTP(w, r)
	}
}

// rejectCertificate returns the injected error of the issuer for a certificate, or nil.
func (e *Emulator) rejectCertificate(name string) error {
	rule := e.faults.Next(faults.Request{Service: ServiceIssuer, Path: "/certificates/" + name, Named: true})
	if rule == nil {
		return nil
	}
	return fmt.Errorf("the issuer rejected the request: %d %s (injected fault)", rule.Status, rule.Code)
}

// writeFault writes the error response of a fault.
func (e *Emulator) writeFault(w http.ResponseWriter, service string, rule *faults.Rule) {
	code := rule.Code
	if code == "" {
		code = map[int]string{http.StatusTooManyRequests: "TooManyRequests", http.StatusConflict: "Conflict", http.StatusServiceUnavailable: "ServerBusy"}[rule.Status]
	}
	if code == "" {
		code = "InternalServerError"
	}
	if wait := rule.RetryAfter(); wait > 0 {
		arm.SetRetryAfter(w.Header(), wait)
	}
	writeError(w, service, rule.Status, code, "Injected fault.")
}

// writeError writes an error response in the format of a service.
func writeError(w http.ResponseWriter, service string, status int, code, message string) {
	if service == ServiceBlob {
		blob.WriteError(w, status, code, message)
		return
	}
	arm.WriteError(w, &arm.Error{Status: status, Code: code, Message: message})
}

// authenticate verifies the bearer token and returns its principal, or nobody for a public blob. If the token is missing or
// invalid, it writes the service's error response and returns false.
func (e *Emulator) authenticate(w http.ResponseWriter, r *http.Request, service string) (rbac.Caller, bool) {
	audiences := map[string][]string{
		ServiceARM:      {"https://management.azure.com", "https://management.core.windows.net"},
		ServiceVault:    {"https://vault.azure.net"},
		ServiceBlob:     {"https://storage.azure.com"},
		ServiceIdentity: {arm.IdentityAudience},
	}[service]
	if service == ServiceBlob && r.Header.Get("Authorization") == "" {
		if public, err := e.blob.Public(r); err == nil && public {
			return rbac.Caller{}, true
		}
	}
	text, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	var claims entra.Claims
	err := errors.New("the 'Authorization' header is missing or has no bearer token")
	if bearer {
		claims, err = e.options.Tokens.Verify(r.Context(), text, audiences)
	}
	if err == nil {
		return rbac.Caller{ObjectID: claims.ObjectID, Groups: claims.Groups}, true
	}
	if errors.Is(err, entra.ErrUnavailable) {
		arm.WriteError(w, &arm.Error{Status: http.StatusServiceUnavailable, Code: "ServiceUnavailable", RetryAfter: time.Second, Message: "Tokens cannot be verified: " + err.Error()})
		return rbac.Caller{}, false
	}
	tenant := e.options.Tenant
	if tenant == "" {
		tenant = "common"
	}
	authority := strings.TrimSuffix(e.options.Tokens.Authority, "/") + "/" + tenant
	switch service {
	case ServiceVault:
		w.Header().Set("WWW-Authenticate", `Bearer authorization="`+authority+`", resource="`+audiences[0]+`"`)
	case ServiceIdentity:
		w.Header().Set("WWW-Authenticate", `Bearer authorization="`+authority+`"`)
	case ServiceBlob:
		w.Header().Set("WWW-Authenticate", "Bearer authorization_uri="+authority+"/oauth2/authorize resource_id="+audiences[0])
		blob.WriteError(w, http.StatusUnauthorized, "NoAuthenticationInformation", "Server failed to authenticate the request: "+err.Error()+".")
		return rbac.Caller{}, false
	default:
		w.Header().Set("WWW-Authenticate", `Bearer authorization_uri="`+authority+`", error="invalid_token"`)
	}
	arm.WriteError(w, &arm.Error{Status: http.StatusUnauthorized, Code: "AuthenticationFailed", Message: "Authentication failed: " + err.Error() + "."})
	return rbac.Caller{}, false
}

// statusRecorder records the status of a response.
type statusRecorder struct {
	http.ResponseWriter
	status int
}

func (r *statusRecorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

// control serves the endpoints for tests and operators of the emulator.
func (e *Emulator) control(w http.ResponseWriter, r *http.Request) {
	if !e.options.EnableFaults {
		http.NotFound(w, r)
		return
	}
	switch r.URL.Path {
	case "/_emulator/faults":
		e.faults.ServeHTTP(w, r)
	case "/_emulator/leftovers":
		leftovers, err := e.Leftovers()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(leftovers) // an error means that the client has disconnected
	case "/_emulator/compute":
		e.arm.ServeComputeLimits(w, r)
	default:
		http.NotFound(w, r)
	}
}
