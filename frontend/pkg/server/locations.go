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

// What the region offers, below its location. It changes only with the configuration of the process.

// offered answers 404 for another region's location.
func (s *Server) offered(rq *request) error {
	if location := rq.param(locationParam); s.Rules.Location(location) != s.Location {
		return apierror.New(apierror.ResourceNotFound, "The location '%s' is not served here; this is %s.", location, s.Location).WithTarget("location")
	}
	return nil
}

// offerID is the id of something that the region offers.
func (s *Server) offerID(rq *request, collection, name string) string {
	return "/subscriptions/" + rq.param(subscriptionParam) + provider + "/locations/" + s.Location + "/" + collection + "/" + name
}

// showOffered answers with something that the region offers. It is not stored, so its ETag is made of what is shown.
func (rq *request) showOffered(value any) error {
	content, err := marshal(value)
	if err != nil {
		return err
	}
	hash := sha256.Sum256(content)
	rq.w.Header().Set("ETag", `"`+hex.EncodeToString(hash[:16])+`"`)
	rq.w.content(http.StatusOK, content)
	return nil
}

// openShiftVersions are those that the caller may know of.
func (s *Server) openShiftVersions(rq *request) []hub.OpenShiftVersion {
	var shown []hub.OpenShiftVersion
	for _, version := range s.releases {
		if !config.Production(version.ChannelGroup) && !rq.subscription.HasFeature(validation.ExperimentalFeature) {
			continue
		}
		version.ID = s.offerID(rq, "hcpOpenShiftVersions", version.Name)
		shown = append(shown, version)
	}
	return shown
}

func (s *Server) listOpenShiftVersions(_ context.Context, rq *request) error {
	if err := s.offered(rq); err != nil {
		return err
	}
	var values []any
	for _, version := range s.openShiftVersions(rq) {
		values = append(values, rq.version.EncodeOpenShiftVersion(&version))
	}
	return s.listFixed(rq, "versions", values)
}

func (s *Server) getOpenShiftVersion(_ context.Context, rq *request) error {
	if err := s.offered(rq); err != nil {
		return err
	}
	name := rq.param(otherParam)
	for _, version := range s.openShiftVersions(rq) {
		if strings.EqualFold(version.Name, name) {
			return rq.showOffered(rq.version.EncodeOpenShiftVersion(&version))
		}
	}
	return notFound(s.offerID(rq, "hcpOpenShiftVersions", name))
}

func (s *Server) listOperatorIdentityRoleSets(_ context.Context, rq *request) error {
	if err := s.offered(rq); err != nil {
		return err
	}
	var values []any
	for _, set := range s.roleSets {
		set.ID = s.offerID(rq, "hcpOperatorIdentityRoleSets", set.Name)
		values = append(values, rq.version.EncodeOperatorIdentityRoleSet(&set))
	}
	return s.listFixed(rq, "role sets", values)
}

func (s *Server) getOperatorIdentityRoleSet(_ context.Context, rq *request) error {
	if err := s.offered(rq); err != nil {
		return err
	}
	name := rq.param(otherParam)
	for _, set := range s.roleSets {
		if set.Name == name {
			set.ID = s.offerID(rq, "hcpOperatorIdentityRoleSets", set.Name)
			return rq.showOffered(rq.version.EncodeOperatorIdentityRoleSet(&set))
		}
	}
	return notFound(s.offerID(rq, "hcpOperatorIdentityRoleSets", name))
}
