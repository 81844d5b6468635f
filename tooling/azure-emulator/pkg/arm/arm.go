// Package arm emulates Azure Resource Manager and the resource providers behind it: resource groups, DNS, networks,
// managed identities, authorization, the sizes and quotas of virtual machines, and the types of a region's infrastructure.
//
// A request names a resource by its ID. A table of resource types lists the supported api-versions, the checks of each
// type and the fields that the provider sets. Other types are rejected with 501. For the types of the catalogue, the emulator
// checks what Resource Manager checks, and stores the properties without knowing them.
//
// Operations that take long in Azure take Options.OperationDelay. Meanwhile the resource has the provisioningState of the
// operation, and the response contains the URL and the interval for polls. An operation also completes if the emulator
// was killed meanwhile.
package arm

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/api/armheader"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/rbac"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/store"
)

// The buckets of this package in the store.
const (
	resources  = "resources"  // by lower-case id
	operations = "operations" // by id
	compute    = "compute"    // by lower-case id of the subscription
)

// maxBody bounds a request body, as in ARM.
const maxBody = 4 << 20

// Options configure a Server.
type Options struct {
	Store *store.Store
	// OperationDelay is the duration of operations that take long in Azure; 0 completes them at once.
	OperationDelay time.Duration
	// AssumeCustomers creates networks and identities that do not exist when they are first requested, with the resource
	// group and the role assignments that they need. A region for development has no customer who creates them.
	AssumeCustomers bool
	// OwnSubscriptions are the subscriptions of the service, in which the emulator assumes nothing: infrastructure as code creates what
	// they contain.
	OwnSubscriptions []string
	// Location is the location of assumed resources.
	Location string
	// Roles are role definitions besides the built-in ones, and Assignments are role assignments besides those that clients create.
	Roles       []rbac.Role
	Assignments []SeedAssignment
	// ResourceProviders are the object IDs of the principals that get credentials of managed identities. Authority is the issuer of tokens that the
	// credentials name, and CredentialLifetime their validity period; 0 means that of Azure.
	ResourceProviders  []string
	Authority          string
	CredentialLifetime time.Duration
	// Log receives the errors of Run; nil discards them.
	Log *slog.Logger
	Now func() time.Time
}

// Server is the HTTP handler. Its Run method must be running to complete operations.
type Server struct {
	Options
	types map[string]*resourceType
	roles []rbac.Role
	// wakeups notifies Run of a new operation.
	wakeups chan struct{}
	// updates serializes requests that change resources, so that their checks still hold when they write.
	updates sync.Mutex
	// credentialKeys returns the keys of the credentials of identities, and generates them at first.
	credentialKeys func() (*credentialKeys, error)
}

// New returns a Server.
func New(o Options) *Server {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{Options: o, types: map[string]*resourceType{}, wakeups: make(chan struct{}, 1), roles: append(builtInRoles(), o.Roles...),
		credentialKeys: sync.OnceValues(newCredentialKeys)}
	for _, k := range slices.Concat(groupTypes(), dnsTypes(), networkTypes(), identityTypes(), diagnosticTypes(), storedTypes()) {
		s.types[strings.ToLower(k.name)] = k
	}
	return s
}

// Resource is a stored resource.
type Resource struct {
	ID         string            `json:"id"`
	Name       string            `json:"name"`
	Type       string            `json:"type"`
	Location   string            `json:"location,omitempty"`
	ManagedBy  string            `json:"managedBy,omitempty"`
	Tags       map[string]string `json:"tags,omitempty"`
	ETag       string            `json:"etag,omitempty"`
	Properties map[string]any    `json:"properties,omitempty"`
	envelope
	// Operation is the ID of the operation in progress. Deleting reports whether it deletes the resource.
	Operation string `json:"operation,omitempty"`
	Deleting  bool   `json:"deleting,omitempty"`
	// Assumed reports whether the resource was created by AssumeCustomers.
	Assumed bool `json:"assumed,omitempty"`
}

// resourceType describes the behaviour of a type of resources.
type resourceType struct {
	name string
	// versions lists the supported api-versions.
	versions []string
	// tracked types have a location.
	tracked bool
	// longPut and longDelete report which operations take OperationDelay.
	longPut, longDelete bool
	// assumable types are created by AssumeCustomers.
	assumable bool
	// put validates the wanted resource and sets the fields that the provider owns. old is nil for a new resource.
	put func(c *call, old, wanted *Resource) error
	// complete sets the fields of a response that depend on other resources.
	complete func(c *call, r *Resource) error
	// canDelete returns an error if a resource must not be deleted.
	canDelete func(c *call, r *Resource) error
	// stored describes a type of the catalogue; it is nil for a type whose properties the emulator knows.
	stored *storedType
	// notFound returns the error for a resource that does not exist; nil means the error of ARM.
	notFound func(p *path) *Error
}

// call is the processing of one request.
type call struct {
	*Server
	tx     *store.Tx
	ctx    context.Context
	method string
	path   *path
	query  url.Values
	header http.Header
	body   []byte
	host   string
}

// response is the response to a request.
type response struct {
	status int
	header http.Header
	body   any
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("x-ms-request-id", uuid.NewString())
	w.Header().Set(armheader.CorrelationID, uuid.NewString())
	resp, err := s.respond(r)
	if err != nil {
		WriteError(w, err)
		return
	}
	for name, values := range resp.header {
		w.Header()[name] = values
	}
	if resp.body == nil {
		w.WriteHeader(resp.status)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(resp.status)
	_ = json.NewEncoder(w).Encode(resp.body) // an error means that the client has disconnected
}

// respond executes a request in a transaction. Reads use a snapshot, unless they may create an assumed resource.
func (s *Server) respond(r *http.Request) (*response, error) {
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxBody))
	if err != nil {
		return nil, &Error{Status: http.StatusRequestEntityTooLarge, Code: "RequestContentTooLarge", Message: "The request content is larger than 4 MiB."}
	}
	p, err := parsePath(r.URL.Path)
	if err != nil {
		return nil, err
	}
	c := &call{Server: s, ctx: r.Context(), method: r.Method, path: p, query: r.URL.Query(), header: r.Header, body: body, host: r.Host}
	if c.query.Get("api-version") == "" {
		return nil, &Error{Status: http.StatusBadRequest, Code: "MissingApiVersionParameter",
			Message: "The api-version query parameter (?api-version=) is required for all requests."}
	}
	if r.Method == http.MethodGet {
		resp, err := c.inTransaction(s.Store.View)
		if !isNotFound(err) || !c.assumable() {
			return resp, err
		}
	}
	s.updates.Lock()
	defer s.updates.Unlock()
	resp, err := c.inTransaction(s.Store.Update)
	if err == nil {
		s.wakeRun()
	}
	return resp, err
}

// inTransaction routes the request in a transaction of run.
func (c *call) inTransaction(run func(func(*store.Tx) error) error) (resp *response, err error) {
	err = run(func(tx *store.Tx) error {
		c.tx = tx
		resp, err = c.route()
		return err
	})
	return resp, err
}

// route authorizes the request and executes it by its type and method.
func (c *call) route() (*response, error) {
	if err := c.authorizeRequest(); err != nil {
		return nil, err
	}
	p := c.path
	switch {
	case p.operation != "":
		return c.showOperation()
	case strings.HasPrefix(p.lowerType, "microsoft.authorization/"):
		return c.routeAuthorization()
	case strings.HasPrefix(p.lowerType, "microsoft.compute/"):
		return c.routeCompute()
	}
	k := c.types[p.typeKey()]
	if k == nil {
		return nil, notImplemented("The type '%s' is not emulated.", p.typ)
	}
	if err := c.checkVersion(k.name, k.versions); err != nil {
		return nil, err
	}
	if p.name == "" {
		if c.method != http.MethodGet {
			return nil, c.methodNotEmulated()
		}
		return c.list(k)
	}
	switch c.method {
	case http.MethodGet:
		return c.get(k)
	case http.MethodPut:
		return c.put(k)
	case http.MethodDelete:
		return c.delete(k)
	}
	return nil, c.methodNotEmulated()
}

// methodNotEmulated returns the error for a method that the type does not support.
func (c *call) methodNotEmulated() error {
	return notImplemented("The method '%s' is not emulated for the type '%s'.", c.method, c.path.typ)
}

// checkVersion returns ARM's error for an unsupported api-version.
func (c *call) checkVersion(name string, versions []string) error {
	for _, v := range versions {
		if c.query.Get("api-version") == v {
			return nil
		}
	}
	return &Error{Status: http.StatusBadRequest, Code: "InvalidResourceType", Message: fmt.Sprintf(
		"The resource type could not be found in the namespace '%s' for api version '%s'. The supported api-versions are '%s'.",
		strings.Split(name, "/")[0], c.query.Get("api-version"), strings.Join(versions, ","))}
}

// find returns the resource with an ID, or nil if it does not exist.
func (c *call) find(id string) (*Resource, error) {
	r := &Resource{}
	found, err := c.tx.Get(resources, strings.ToLower(id), r)
	if err != nil || !found {
		return nil, err
	}
	return r, nil
}

// save stores a resource.
func (c *call) save(r *Resource) error { return c.tx.Put(resources, strings.ToLower(r.ID), r) }

// existing returns the requested resource. It creates the resource if it is assumable, or returns an error if it does not
// exist.
func (c *call) existing(k *resourceType) (*Resource, error) {
	r, err := c.find(c.path.id)
	if err != nil || r != nil {
		return r, err
	}
	if c.assumes() && k.assumable && c.tx.Writable() {
		return c.assumeRequested(k)
	}
	return nil, c.notFoundError(k)
}

// notFoundError returns the error for the requested resource, which does not exist.
func (c *call) notFoundError(k *resourceType) error {
	if err := c.checkGroup(); err != nil {
		return err
	}
	if k.notFound != nil {
		return k.notFound(c.path)
	}
	return &Error{Status: http.StatusNotFound, Code: "ResourceNotFound", Message: fmt.Sprintf(
		"The Resource '%s/%s' under resource group '%s' was not found. For more details please go to https://aka.ms/ARMResourceNotFoundFix",
		c.path.typ, strings.Join(c.path.names, "/"), c.path.group)}
}

// checkGroup returns an error if the resource group does not exist, or if it is being deleted and the request creates a
// resource in it.
func (c *call) checkGroup() error {
	if c.path.group == "" || c.path.typ == groupType {
		return nil
	}
	group, err := c.find(c.path.groupID())
	switch {
	case err != nil:
		return err
	case group == nil:
		return groupNotFound(c.path)
	case group.Deleting && c.method == http.MethodPut:
		return &Error{Status: http.StatusConflict, Code: "ResourceGroupBeingDeleted", Message: fmt.Sprintf(
			"The resource group '%s' is in deprovisioning state and cannot perform this operation.", c.path.group)}
	}
	return nil
}

// get responds with the requested resource.
func (c *call) get(k *resourceType) (*response, error) {
	r, err := c.existing(k)
	if err != nil {
		return nil, err
	}
	return c.representation(k, r, http.StatusOK)
}

// representation returns the response with a resource.
func (c *call) representation(k *resourceType, r *Resource, status int) (*response, error) {
	if k.complete != nil {
		if err := k.complete(c, r); err != nil {
			return nil, err
		}
	}
	return &response{status: status, header: http.Header{}, body: r.public()}, nil
}

// public returns a copy without the fields that only the emulator uses.
func (r *Resource) public() *Resource {
	out := *r
	out.Operation, out.Deleting, out.Assumed = "", false, false
	return &out
}

// listPage is the maximum number of resources in a page of a list.
const listPage = 100

// list responds with a page of the resources of a type in the scope, in order of ID, and with the link to the next page.
func (c *call) list(k *resourceType) (*response, error) {
	if err := c.checkGroup(); err != nil {
		return nil, err
	}
	value, last, body := []any{}, "", map[string]any{}
	all, err := store.All[Resource](c.tx, resources, strings.ToLower(c.path.listScope())+"/")
	if err != nil {
		return nil, err
	}
	for _, r := range all {
		if !strings.EqualFold(typeKeyOf(r), k.name) || c.path.recordType != "" && !strings.EqualFold(r.Type, c.path.typ) {
			continue
		}
		if after := c.query.Get("$skiptoken"); after != "" && strings.ToLower(r.ID) <= after {
			continue
		}
		if len(value) == listPage {
			query := maps.Clone(c.query)
			query.Set("$skiptoken", last)
			next := url.URL{Scheme: "https", Host: c.host, Path: c.path.id, RawQuery: query.Encode()}
			body["nextLink"] = next.String()
			break
		}
		if k.complete != nil {
			if err := k.complete(c, r); err != nil {
				return nil, err
			}
		}
		value, last = append(value, r.public()), strings.ToLower(r.ID)
	}
	body["value"] = value
	return &response{status: http.StatusOK, body: body}, nil
}

// put creates or replaces a resource.
func (c *call) put(k *resourceType) (*response, error) {
	if err := c.checkGroup(); err != nil {
		return nil, err
	}
	old, err := c.find(c.path.id)
	if err != nil {
		return nil, err
	}
	if old != nil && old.Operation != "" {
		return nil, inProgress(old)
	}
	if err := c.checkConditions(old); err != nil {
		return nil, err
	}
	wanted, err := c.wanted(k)
	if err != nil {
		return nil, err
	}
	if old == nil && k.tracked && wanted.Location == "" {
		return nil, badRequest("LocationRequired", "The location property is required for this definition.")
	}
	wanted.ID, wanted.Name, wanted.Type = c.path.id, c.path.name, c.path.typ
	if k.name == groupType {
		wanted.ID = c.path.groupID() // the same case for every request
	}
	wanted.Operation, wanted.Deleting, wanted.Assumed = "", false, false
	if old != nil {
		wanted.ID, wanted.Name, wanted.Location = old.ID, old.Name, old.Location
		wanted.Assumed = old.Assumed
	}
	if wanted.Properties == nil {
		wanted.Properties = map[string]any{}
	}
	wanted.ETag = uuid.NewString()
	if k.put != nil {
		if err := k.put(c, old, wanted); err != nil {
			return nil, err
		}
	}
	status := http.StatusCreated
	if old != nil {
		status = http.StatusOK
	}
	wanted.Properties["provisioningState"] = "Succeeded"
	header := http.Header{}
	if k.longPut && c.OperationDelay > 0 {
		wanted.Properties["provisioningState"] = "Updating"
		if k.stored != nil && old == nil {
			wanted.Properties["provisioningState"] = "Creating"
		}
		if header, err = c.startOperation(wanted, false); err != nil {
			return nil, err
		}
	}
	if err := c.save(wanted); err != nil {
		return nil, err
	}
	resp, err := c.representation(k, wanted, status)
	if err == nil {
		resp.header = header
	}
	return resp, err
}

// checkConditions checks If-Match and If-None-Match.
func (c *call) checkConditions(old *Resource) error {
	match, none := strings.Trim(c.header.Get("If-Match"), `"`), strings.Trim(c.header.Get("If-None-Match"), `"`)
	switch {
	case none == "*" && old != nil, match != "" && old == nil, match != "" && match != "*" && match != old.ETag:
		return &Error{Status: http.StatusPreconditionFailed, Code: "PreconditionFailed", Message: "The condition '" + match + none + "' of the request was not met."}
	}
	return nil
}

// SetRetryAfter sets the headers with the time to wait before the next request: whole seconds for all clients, and
// milliseconds, which the SDK prefers.
func SetRetryAfter(header http.Header, wait time.Duration) {
	header.Set("Retry-After", strconv.Itoa(max(1, int((wait+time.Second-1)/time.Second))))
	header.Set(armheader.RetryAfterMS, strconv.Itoa(max(1, int(wait/time.Millisecond))))
}
