// Package emulator puts the emulated services of Azure behind one handler: Resource Manager below /subscriptions and
// /providers, one Key Vault below /certificates, and Blob Storage below the names of its accounts. A request meets an
// injected fault first, then the check of its bearer token, then the service. What exists is in one file; what a region is
// born with (its own resource group, DNS zone, storage account) comes from a seed that is applied at every start.
package emulator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/faults"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/arm"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/blob"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/store"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/token"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/vault"
)

// Names of the emulated services, as faults and metrics know them.
const (
	ServiceARM   = "arm"
	ServiceVault = "vault"
	ServiceBlob  = "blob"
	// ServiceIssuer is who issues certificates: no requests come for it, and a rule that names it has it refuse.
	ServiceIssuer = "issuer"
)

// Options of an Emulator.
type Options struct {
	// DataDir holds the data; it is locked while in use.
	DataDir string
	// Tokens verifies bearer tokens.
	Tokens *token.Verifier
	// Tenant is the one that callers without a token are sent to; empty is common to all.
	Tenant string
	// OperationDelay is how long the operations take that are long in Azure; 0 has them done at once.
	OperationDelay time.Duration
	// AssumeCustomers has customers' networks and identities be there when they are first asked for.
	AssumeCustomers bool
	Location        string
	// CertificateLife is how long the vault's certificates live; 0 is what their policy says.
	CertificateLife time.Duration
	Seed            Seed
	// EnableFaults opens the control endpoints below /_emulator, which have no authentication.
	EnableFaults bool
	FaultSeed    uint64
	Now          func() time.Time
}

// Emulator is the handler. Run it, too.
type Emulator struct {
	// Observe is told of every answer, if it is set before the first request.
	Observe func(service, method string, status int, took time.Duration)

	options Options
	store   *store.Store
	arm     *arm.Server
	vault   *vault.Server
	blob    *blob.Server
	faults  *faults.Set
}

// Open opens or makes the data.
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
	e.arm = arm.New(arm.Options{Store: opened, OperationDelay: o.OperationDelay, AssumeCustomers: o.AssumeCustomers, Location: o.Location, Now: o.Now})
	e.vault = vault.New(vault.Options{Store: opened, OperationDelay: o.OperationDelay, Issuers: o.Seed.Issuers, Life: o.CertificateLife,
		Refuse: e.refuseCertificate, Now: o.Now})
	e.blob = &blob.Server{Store: opened, Now: o.Now}
	if err := e.sow(o.Seed); err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	return e, nil
}

// Run does what is due in time until ctx is over.
func (e *Emulator) Run(ctx context.Context) { e.arm.Run(ctx) }

// Close closes the data; requests must have ended.
func (e *Emulator) Close() error { return e.store.Close() }

// Faults are the injected faults.
func (e *Emulator) Faults() *faults.Set { return e.faults }

// ServeHTTP answers one request.
func (e *Emulator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/_emulator/") {
		e.control(w, r)
		return
	}
	service := e.service(r.URL.Path)
	begun := time.Now()
	recorder := &recorder{ResponseWriter: w, status: http.StatusOK}
	defer func() {
		if e.Observe != nil {
			e.Observe(service, r.Method, recorder.status, time.Since(begun))
		}
	}()
	rule := e.faults.Next(faults.Request{Method: r.Method, Service: service, Path: r.URL.Path})
	if rule != nil {
		if wait := rule.Latency(); wait > 0 {
			select {
			case <-r.Context().Done():
			case <-time.After(wait):
			}
		}
		switch {
		case rule.DropRequest:
			panic(http.ErrAbortHandler)
		case rule.DropResponse:
			e.serve(httptest.NewRecorder(), r, service)
			panic(http.ErrAbortHandler)
		case rule.Status != 0:
			e.refuse(recorder, service, rule)
			return
		}
	}
	e.serve(recorder, r, service)
}

func (e *Emulator) service(path string) string {
	switch {
	case strings.HasPrefix(path, "/certificates"), strings.HasPrefix(path, "/deletedcertificates"), strings.HasPrefix(path, "/secrets"), strings.HasPrefix(path, "/keys"):
		return ServiceVault
	case e.blob.Serves(path):
		return ServiceBlob
	}
	return ServiceARM
}

func (e *Emulator) serve(w http.ResponseWriter, r *http.Request, service string) {
	if !e.authenticate(w, r, service) {
		return
	}
	switch service {
	case ServiceVault:
		e.vault.ServeHTTP(w, r)
	case ServiceBlob:
		e.blob.ServeHTTP(w, r)
	default:
		e.arm.ServeHTTP(w, r)
	}
}

// refuseCertificate is why a certificate is not issued; nil when it is.
func (e *Emulator) refuseCertificate(name string) error {
	rule := e.faults.Next(faults.Request{Service: ServiceIssuer, Path: "/certificates/" + name, Named: true})
	if rule == nil {
		return nil
	}
	return fmt.Errorf("the issuer refused: %d %s, an injected fault", rule.Status, rule.Code)
}

// refuse answers with the fault's status.
func (e *Emulator) refuse(w http.ResponseWriter, service string, rule *faults.Rule) {
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
	if service == ServiceBlob {
		blob.WriteError(w, rule.Status, code, "An injected fault.")
		return
	}
	arm.WriteError(w, &arm.Error{Status: rule.Status, Code: code, Message: "An injected fault."})
}

// authenticate checks the bearer token, and answers as the service does when there is none that is good.
func (e *Emulator) authenticate(w http.ResponseWriter, r *http.Request, service string) bool {
	audiences := map[string][]string{ServiceARM: token.ResourceManager, ServiceVault: token.KeyVault, ServiceBlob: token.Storage}[service]
	if service == ServiceBlob && r.Header.Get("Authorization") == "" {
		if public, err := e.blob.Public(r); err == nil && public {
			return true
		}
	}
	text, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	err := errors.New("the 'Authorization' header is missing or has no bearer token")
	if bearer {
		err = e.options.Tokens.Verify(r.Context(), text, audiences)
	}
	if err == nil {
		return true
	}
	if errors.Is(err, token.ErrUnavailable) {
		arm.WriteError(w, &arm.Error{Status: http.StatusServiceUnavailable, Code: "ServiceUnavailable", RetryAfter: time.Second, Message: "Tokens cannot be verified: " + err.Error()})
		return false
	}
	tenant := e.options.Tenant
	if tenant == "" {
		tenant = "common"
	}
	authority := strings.TrimSuffix(e.options.Tokens.Authority, "/") + "/" + tenant
	switch service {
	case ServiceVault:
		w.Header().Set("WWW-Authenticate", `Bearer authorization="`+authority+`", resource="`+audiences[0]+`"`)
	case ServiceBlob:
		w.Header().Set("WWW-Authenticate", "Bearer authorization_uri="+authority+"/oauth2/authorize resource_id="+audiences[0])
		blob.WriteError(w, http.StatusUnauthorized, "NoAuthenticationInformation", "Server failed to authenticate the request: "+err.Error()+".")
		return false
	default:
		w.Header().Set("WWW-Authenticate", `Bearer authorization_uri="`+authority+`", error="invalid_token"`)
	}
	arm.WriteError(w, &arm.Error{Status: http.StatusUnauthorized, Code: "AuthenticationFailed", Message: "Authentication failed: " + err.Error() + "."})
	return false
}

// recorder remembers the status.
type recorder struct {
	http.ResponseWriter
	status int
}

func (r *recorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

// control answers what only tests and operators of the emulator ask.
func (e *Emulator) control(w http.ResponseWriter, r *http.Request) {
	if !e.options.EnableFaults {
		http.NotFound(w, r)
		return
	}
	switch r.URL.Path {
	case "/_emulator/faults":
		e.faults.ServeHTTP(w, r)
	case "/_emulator/leftovers":
		left, err := e.Leftovers()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(left) // the client is gone
	default:
		http.NotFound(w, r)
	}
}
