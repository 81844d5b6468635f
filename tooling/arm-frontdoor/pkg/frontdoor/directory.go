package frontdoor

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/asciifold"
	"github.com/hcpmesh/hcpmesh/internal/disk"
)

// Subscription is a subscription with its resource groups.
type Subscription struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	TenantID string `json:"tenantId"`
	// Provider is the state of the resource provider's registration: NotRegistered, Registering, Registered or
	// Unregistering.
	Provider string `json:"provider"`
	// RegistrationDate is the time of the resource provider's first registration.
	RegistrationDate time.Time `json:"registrationDate,omitzero"`
	// State is the state that the resource provider is notified of: Registered, Unregistered, Warned, Suspended or Deleted.
	State string `json:"state"`
	// Features lists the registered features of the provider.
	Features []string `json:"features,omitempty"`
	// PendingFeatures lists the features that the customer requested and the provider has not approved.
	PendingFeatures []string `json:"pendingFeatures,omitempty"`
	// Groups holds the resource groups by lower-case name.
	Groups map[string]*Group `json:"groups,omitempty"`
}

// The states of a provider's registration.
const (
	NotRegistered = "NotRegistered"
	Registered    = "Registered"
)

// Group is a resource group.
type Group struct {
	Name      string            `json:"name"`
	Location  string            `json:"location"`
	ManagedBy string            `json:"managedBy,omitempty"`
	Tags      map[string]string `json:"tags,omitempty"`
	// Deleting reports whether the group is being deleted.
	Deleting bool `json:"deleting,omitempty"`
}

// Directory stores ARM's own data of a region: subscriptions, the registrations of the resource provider, and resource groups. The data is small, so
// it is held in memory and in one file that is replaced atomically before a change is acknowledged. Comparisons of names ignore the case of ASCII
// letters, and names are stored with the case of their creation. A Directory is safe for concurrent use.
type Directory struct {
	path string

	mu            sync.Mutex
	subscriptions map[string]*Subscription
}

// OpenDirectory reads the directory in the file at path. Without a file the directory is empty.
func OpenDirectory(path string) (*Directory, error) {
	d := &Directory{path: path, subscriptions: map[string]*Subscription{}}
	data, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return d, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &d.subscriptions)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the directory of subscriptions: %w", err)
	}
	return d, nil
}

// Subscription returns a copy of a subscription, and false if it does not exist.
func (d *Directory) Subscription(id string) (Subscription, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	found := d.subscriptions[asciifold.Lower(id)]
	if found == nil {
		return Subscription{}, false
	}
	return found.clone(), true
}

// Subscriptions returns copies of all subscriptions, sorted by ID.
func (d *Directory) Subscriptions() []Subscription {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make([]Subscription, 0, len(d.subscriptions))
	for _, s := range d.subscriptions {
		all = append(all, s.clone())
	}
	slices.SortFunc(all, func(a, b Subscription) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// Group returns a copy of a resource group, and false if it does not exist.
func (s *Subscription) Group(name string) (Group, bool) {
	found := s.Groups[asciifold.Lower(name)]
	if found == nil {
		return Group{}, false
	}
	return *found, true
}

// SortedGroups returns copies of the resource groups, sorted by name.
func (s *Subscription) SortedGroups() []Group {
	all := make([]Group, 0, len(s.Groups))
	for _, g := range s.Groups {
		all = append(all, *g)
	}
	slices.SortFunc(all, func(a, b Group) int { return cmp.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name)) })
	return all
}

// Update changes a subscription with change and returns a copy after the change is durable. A subscription that does not
// exist is created. If change returns an error, nothing is changed. change must not retain its argument.
func (d *Directory) Update(id string, change func(s *Subscription) error) (Subscription, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := asciifold.Lower(id)
	next := Subscription{ID: key, Provider: NotRegistered, State: "Unregistered"}
	before := d.subscriptions[key]
	if before != nil {
		next = before.clone()
	}
	if next.Groups == nil {
		next.Groups = map[string]*Group{}
	}
	if err := change(&next); err != nil {
		return Subscription{}, err
	}
	d.subscriptions[key] = &next
	if err := d.save(); err != nil {
		d.subscriptions[key] = before
		if before == nil {
			delete(d.subscriptions, key)
		}
		return Subscription{}, fmt.Errorf("storing the subscription: %w", err)
	}
	return next.clone(), nil
}

func (d *Directory) save() error {
	data, err := json.MarshalIndent(d.subscriptions, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(d.path), 0o700); err != nil {
		return err
	}
	return disk.Replace(d.path, data, 0o600)
}

func (s *Subscription) clone() Subscription {
	c := *s
	c.Features, c.PendingFeatures = slices.Clone(s.Features), slices.Clone(s.PendingFeatures)
	c.Groups = make(map[string]*Group, len(s.Groups))
	for name, g := range s.Groups {
		copied := *g
		c.Groups[name] = &copied
	}
	return c
}
