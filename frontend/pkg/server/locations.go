package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/config"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/validation"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// The handlers of a region's catalogue, below its location. The catalogue changes only with the configuration of the
// process.

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
	rq.w.Header().Set("ETag", `"`+hex.EncodeToString(hash[:16])+`"`)
	rq.w.content(http.StatusOK, content)
	return nil
}

// openShiftVersions returns the versions that the caller may see.
func (s *Server) openShiftVersions(rq *request) []hub.OpenShiftVersion {
	var visible []hub.OpenShiftVersion
	for _, version := range s.releases {
		if !config.Production(version.ChannelGroup) && !rq.subscription.HasFeature(validation.ExperimentalFeature) {
			continue
		}
		version.ID = s.locationResourceID(rq, "hcpOpenShiftVersions", version.Name)
		visible = append(visible, version)
	}
	return visible
}

func (s *Server) listOpenShiftVersions(_ context.Context, rq *request) error {
	if err := s.checkLocation(rq); err != nil {
		return err
	}
	var values []any
	for _, version := range s.openShiftVersions(rq) {
		values = append(values, rq.version.EncodeOpenShiftVersion(&version))
	}
	return rq.writeList(values)
}

func (s *Server) getOpenShiftVersion(_ context.Context, rq *request) error {
	if err := s.checkLocation(rq); err != nil {
		return err
	}
	name := rq.param(otherParam)
	for _, version := range s.openShiftVersions(rq) {
		if strings.EqualFold(version.Name, name) {
			return rq.writeWithContentETag(rq.version.EncodeOpenShiftVersion(&version))
		}
	}
	return notFound(s.locationResourceID(rq, "hcpOpenShiftVersions", name))
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
		if set.Name == name {
			set.ID = s.locationResourceID(rq, "hcpOperatorIdentityRoleSets", set.Name)
			return rq.writeWithContentETag(rq.version.EncodeOperatorIdentityRoleSet(&set))
		}
	}
	return notFound(s.locationResourceID(rq, "hcpOperatorIdentityRoleSets", name))
}
