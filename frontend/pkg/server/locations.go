package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/asciifold"
)

// The handlers below a region's location. The role sets change only with the configuration of the process; file
// openshiftversion.go has the versions.

// checkLocation returns a ResourceNotFound error for the location of another region.
func (s *Server) checkLocation(rq *request) error {
	if location := rq.param(locationParam); s.Rules.Location(location) != s.Location {
		return apierror.New(apierror.ResourceNotFound, "The location '%s' is not served here; this is %s.", location, s.Location).WithTarget("location")
	}
	return nil
}

// locationResourceID returns the ARM ID of a catalogue entry.
func (s *Server) locationResourceID(rq *request, collection, name string) string {
	return "/subscriptions/" + rq.param(subscriptionParam) + provider + "/locations/" + s.Location + "/" + collection + "/" + name
}

// writeWithContentETag responds with a catalogue entry. Entries are not stored, so that the ETag is a hash of the
// content.
func (rq *request) writeWithContentETag(value any) error {
	content, err := marshal(value)
	if err != nil {
		return err
	}
	hash := sha256.Sum256(content)
	if unchanged, err := rq.notModified(`"` + hex.EncodeToString(hash[:16]) + `"`); unchanged || err != nil {
		return err
	}
	rq.w.content(http.StatusOK, content)
	return nil
}

func (s *Server) listOperatorIdentityRoleSets(_ context.Context, rq *request) error {
	if err := s.checkLocation(rq); err != nil {
		return err
	}
	var values []any
	for _, set := range s.roleSets {
		set.ID = s.locationResourceID(rq, "hcpOperatorIdentityRoleSets", set.Name)
		values = append(values, rq.version.EncodeOperatorIdentityRoleSet(&set))
	}
	return rq.writeList(values)
}

func (s *Server) getOperatorIdentityRoleSet(_ context.Context, rq *request) error {
	if err := s.checkLocation(rq); err != nil {
		return err
	}
	name := rq.param(otherParam)
	for _, set := range s.roleSets {
		if asciifold.Equal(set.Name, name) {
			set.ID = s.locationResourceID(rq, "hcpOperatorIdentityRoleSets", set.Name)
			return rq.writeWithContentETag(rq.version.EncodeOperatorIdentityRoleSet(&set))
		}
	}
	return notFound(s.locationResourceID(rq, "hcpOperatorIdentityRoleSets", name))
}
