// Package arm answers as Azure Resource Manager and the resource providers behind it do: resource groups, DNS, networks,
// managed identities and authorization. A request names a resource by its id; a table of kinds says which there are, in
// which api-versions, and what each checks and fills in. Operations that are long in Azure are long here when they are given
// a duration: the resource says so in its provisioningState, the answer says where to ask and how soon, and the end comes
// in its time, also when the emulator was killed in between. What is not in the table is refused with 501, never guessed.
package arm

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/api/armheader"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/store"
)

// The buckets of the store that belong to this package.
const (
	resources  = "resources"  // by lower-case id
	operations = "operations" // by id
)

// maxBody bounds a request's body, as ARM does.
const maxBody = 4 << 20

// Options of a Server.
type Options struct {
	Store *store.Store
	// OperationDelay is how long the operations take that are long in Azure; 0 has them done at once.
	OperationDelay time.Duration
	// AssumeCustomers has networks and identities that nobody made be there when they are first asked for, with the roles
	// that they need: a region for development has no customer who makes them. Resource groups come with them.
	AssumeCustomers bool
	// Location is that of what is assumed.
	Location string
	Now      func() time.Time
}

// Server is the handler. Run it, too: it ends long operations.
type Server struct {
	Options
	kinds map[string]*kind
	// woken tells Run of an operation that began.
	woken chan struct{}
	// changing orders requests that change something, so that what one checks holds until it is written.
	changing sync.Mutex
}

// New makes a server.
func New(o Options) *Server {
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Server{Options: o, kinds: map[string]*kind{}, woken: make(chan struct{}, 1)}
	for _, k := range append(append(append(groupKinds(), dnsKinds()...), networkKinds()...), identityKinds()...) {
		s.kinds[strings.ToLower(k.name)] = k
	}
	return s
}

// Resource is what is kept of a resource.
type Resource struct {
	ID         string            `json:"id"`
	Name       string            `json:"name"`
	Type       string            `json:"type"`
	Location   string            `json:"location,omitempty"`
	ManagedBy  string            `json:"managedBy,omitempty"`
	Tags       map[string]string `json:"tags,omitempty"`
	ETag       string            `json:"etag,omitempty"`
	Properties map[string]any    `json:"properties,omitempty"`
	// Operation is the id of the one under way; Deleting says that it is the resource's end.
	Operation string `json:"operation,omitempty"`
	Deleting  bool   `json:"deleting,omitempty"`
	// Assumed says that nobody made it.
	Assumed bool `json:"assumed,omitempty"`
}

// kind is a type of resources.
type kind struct {
	name string
	// versions are the api-versions that are spoken.
	versions []string
	// tracked resources have a location.
	tracked bool
	// longPut and longDelete are long in Azure.
	longPut, longDelete bool
	// assumable may be there without having been made, in a region for development.
	assumable bool
	// put checks what is wanted and fills in what the provider decides; old is nil for a new resource.
	put func(c *call, old, wanted *Resource) error
	// show adds what follows from other resources.
	show func(c *call, r *Resource) error
	// remove checks whether a resource may go.
	remove func(c *call, r *Resource) error
	// absent is the error for a resource that is not there; a general one when nil.
	absent func(p *path) *Error
}

// call is one request.
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

// answer is what is said to a request.
type answer struct {
	status int
	header http.Header
	body   any
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("x-ms-request-id", uuid.NewString())
	w.Header().Set(armheader.CorrelationID, uuid.NewString())
	given, err := s.answer(r)
	if err != nil {
		WriteError(w, err)
		return
	}
	for name, values := range given.header {
		w.Header()[name] = values
	}
	if given.body == nil {
		w.WriteHeader(given.status)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(given.status)
	_ = json.NewEncoder(w).Encode(given.body) // the client is gone
}

func (s *Server) answer(r *http.Request) (*answer, error) {
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
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		given, err := c.within(s.Store.View)
		if !s.AssumeCustomers || !isAbsent(err) || !c.assumable() {
			return given, err
		}
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	given, err := c.within(s.Store.Update)
	if err == nil {
		s.wake()
	}
	return given, err
}

func (c *call) within(run func(func(*store.Tx) error) error) (given *answer, err error) {
	err = run(func(tx *store.Tx) error {
		c.tx = tx
		given, err = c.route()
		return err
	})
	return given, err
}

// route answers by what the path names.
func (c *call) route() (*answer, error) {
	p := c.path
	switch {
	case p.operation != "":
		return c.showOperation()
	case strings.HasPrefix(p.lowerType, "microsoft.authorization/"):
		return c.authorization()
	}
	k := c.kinds[p.kindName()]
	if k == nil {
		return nil, notImplemented("The type '%s' is not emulated.", p.typ)
	}
	if err := c.checkVersion(k.name, k.versions); err != nil {
		return nil, err
	}
	if p.name == "" {
		if c.method != http.MethodGet {
			return nil, c.notAllowed()
		}
		return c.list(k)
	}
	switch c.method {
	case http.MethodGet:
		return c.get(k)
	case http.MethodHead:
		if k.name != groupType {
			return nil, c.notAllowed()
		}
		if _, err := c.existing(k); err != nil {
			return nil, err
		}
		return &answer{status: http.StatusNoContent}, nil
	case http.MethodPut:
		return c.put(k)
	case http.MethodDelete:
		return c.delete(k)
	}
	return nil, c.notAllowed()
}

func (c *call) notAllowed() error {
	return notImplemented("The method '%s' is not emulated for the type '%s'.", c.method, c.path.typ)
}

// checkVersion refuses an api-version that is not spoken, as ARM does.
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

// find reads a resource by its id; nil when it is not there.
func (c *call) find(id string) (*Resource, error) {
	r := &Resource{}
	found, err := c.tx.Get(resources, strings.ToLower(id), r)
	if err != nil || !found {
		return nil, err
	}
	return r, nil
}

func (c *call) save(r *Resource) error { return c.tx.Put(resources, strings.ToLower(r.ID), r) }

// existing is the resource that the request names, or the error that it is not there.
func (c *call) existing(k *kind) (*Resource, error) {
	r, err := c.find(c.path.id)
	if err != nil || r != nil {
		return r, err
	}
	if c.AssumeCustomers && k.assumable && c.tx.Writable() {
		return c.assume(k)
	}
	return nil, c.absence(k)
}

func (c *call) absence(k *kind) error {
	if err := c.checkGroup(); err != nil {
		return err
	}
	if k.absent != nil {
		return k.absent(c.path)
	}
	return &Error{Status: http.StatusNotFound, Code: "ResourceNotFound", Message: fmt.Sprintf(
		"The Resource '%s/%s' under resource group '%s' was not found. For more details please go to https://aka.ms/ARMResourceNotFoundFix",
		c.path.typ, strings.Join(c.path.names, "/"), c.path.group)}
}

// checkGroup checks that the resource group of the path is there, and not on its way out when something is made in it.
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

func (c *call) get(k *kind) (*answer, error) {
	r, err := c.existing(k)
	if err != nil {
		return nil, err
	}
	return c.shown(k, r, http.StatusOK)
}

// shown is a resource as callers see it.
func (c *call) shown(k *kind, r *Resource, status int) (*answer, error) {
	if k.show != nil {
		if err := k.show(c, r); err != nil {
			return nil, err
		}
	}
	return &answer{status: status, header: http.Header{}, body: r.public()}, nil
}

// public is a resource without what only the emulator knows.
func (r *Resource) public() *Resource {
	out := *r
	out.Operation, out.Deleting, out.Assumed = "", false, false
	return &out
}

func (c *call) list(k *kind) (*answer, error) {
	if err := c.checkGroup(); err != nil {
		return nil, err
	}
	value := []any{}
	all, err := store.All[Resource](c.tx, resources, strings.ToLower(c.path.scope)+"/")
	if err != nil {
		return nil, err
	}
	for _, r := range all {
		if !strings.EqualFold(kindOf(r), k.name) || c.path.recordType != "" && !strings.EqualFold(r.Type, c.path.typ) {
			continue
		}
		if k.show != nil {
			if err := k.show(c, r); err != nil {
				return nil, err
			}
		}
		value = append(value, r.public())
	}
	return &answer{status: http.StatusOK, body: map[string]any{"value": value}}, nil
}

// put makes or replaces a resource.
func (c *call) put(k *kind) (*answer, error) {
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
	wanted := &Resource{}
	if len(c.body) > 0 {
		if err := json.Unmarshal(c.body, wanted); err != nil {
			return nil, badRequest("InvalidRequestContent", "The request content was invalid and could not be deserialized: '%v'.", err)
		}
	}
	if old == nil && k.tracked && wanted.Location == "" {
		return nil, badRequest("LocationRequired", "The location property is required for this definition.")
	}
	wanted.ID, wanted.Name, wanted.Type = c.path.id, c.path.name, c.path.typ
	if k.name == groupType {
		wanted.ID = c.path.groupID() // in one spelling, however it was asked for
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
		moving := "Updating"
		wanted.Properties["provisioningState"] = moving
		if header, err = c.begin(wanted, false); err != nil {
			return nil, err
		}
	}
	if err := c.save(wanted); err != nil {
		return nil, err
	}
	given, err := c.shown(k, wanted, status)
	if err == nil {
		given.header = header
	}
	return given, err
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

// delete removes a resource and all below it, at once or in the end.
func (c *call) delete(k *kind) (*answer, error) {
	r, err := c.find(c.path.id)
	if err != nil {
		return nil, err
	}
	if r == nil {
		if k.name == groupType {
			return nil, groupNotFound(c.path)
		}
		if err := c.checkGroup(); err != nil {
			return nil, err
		}
		return &answer{status: http.StatusNoContent}, nil
	}
	if r.Operation != "" {
		if !r.Deleting {
			return nil, inProgress(r)
		}
		return &answer{status: http.StatusAccepted, header: c.pollHeaders(r, r.Operation, true)}, nil
	}
	if err := c.checkConditions(r); err != nil {
		return nil, err
	}
	if k.remove != nil {
		if err := k.remove(c, r); err != nil {
			return nil, err
		}
	}
	if k.longDelete && c.OperationDelay > 0 {
		if r.Properties == nil {
			r.Properties = map[string]any{}
		}
		r.Properties["provisioningState"], r.Deleting = "Deleting", true
		header, err := c.begin(r, true)
		if err != nil {
			return nil, err
		}
		return &answer{status: http.StatusAccepted, header: header}, c.save(r)
	}
	return &answer{status: http.StatusOK}, c.removeTree(r.ID)
}

// removeTree removes a resource and all below it.
func (c *call) removeTree(id string) error {
	lower := strings.ToLower(id)
	var keys []string
	err := c.tx.Scan(resources, lower, func(key string, _ func(any) error) error {
		if key == lower || strings.HasPrefix(key, lower+"/") {
			keys = append(keys, key)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, key := range keys {
		if err := c.tx.Delete(resources, key); err != nil {
			return err
		}
	}
	return nil
}

// SetRetryAfter sets the headers by which an answer asks for patience: whole seconds for everybody, and milliseconds for the
// SDK, which prefers them.
func SetRetryAfter(header http.Header, wait time.Duration) {
	header.Set("Retry-After", strconv.Itoa(max(1, int((wait+time.Second-1)/time.Second))))
	header.Set(armheader.RetryAfterMS, strconv.Itoa(max(1, int(wait/time.Millisecond))))
}
