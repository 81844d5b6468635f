package blob

import (
	"net/http"
	"time"
)

// Immutability is a time-based retention policy of a container. Nobody can delete or overwrite a blob before its retention has ended.
type Immutability struct {
	// Days is the retention of a blob, in days since it was last changed.
	Days int `json:"days"`
	// ProtectedAppends permits appending to append blobs (allowProtectedAppendWrites).
	ProtectedAppends bool `json:"allowProtectedAppendWrites,omitempty"`
}

var errImmutable = newError(http.StatusConflict, "BlobImmutableDueToPolicy", "This operation is not permitted as the blob is immutable due to a policy.")

// retained reports whether the policy protects a blob now.
func (c *container) retained(d *document, now time.Time) bool {
	return c.Immutability != nil && d != nil && now.Before(d.Modified.AddDate(0, 0, c.Immutability.Days))
}

// checkReplaceable returns an error if a policy protects a blob, which may be nil, from deletion and overwriting.
func (s *Server) checkReplaceable(p path, d *document) error {
	c, err := s.existingContainer(p)
	if err == nil && c.retained(d, s.Now()) {
		err = errImmutable
	}
	return err
}

// checkAppend returns an error if a policy protects a blob from appending.
func (s *Server) checkAppend(p path) error {
	c, err := s.existingContainer(p)
	if err == nil && c.Immutability != nil && !c.Immutability.ProtectedAppends {
		err = errImmutable
	}
	return err
}

// SetImmutability sets the policy of a container, in place of Resource Manager. A policy cannot be removed or made shorter, as a locked
// one in Azure.
func (s *Server) SetImmutability(account, name string, policy *Immutability) error {
	p := path{account: account, container: name}
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.existingContainer(p)
	if err != nil {
		return err
	}
	if old := c.Immutability; old != nil && (policy == nil || policy.Days < old.Days) {
		return newError(http.StatusConflict, "ImmutabilityPolicyLocked", "The policy of container %s is locked: its retention cannot become shorter.", name)
	}
	c.Immutability = policy
	return s.putContainer(account, c)
}
