package server

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/asciifold"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
)

// VersionReader reads the versions that clusters can be installed with from Cluster Service; see package clusterservice.
type VersionReader interface {
	OpenShiftVersions(ctx context.Context, last clusterservice.OpenShiftVersions) (clusterservice.OpenShiftVersions, error)
}

// The bounds of the call to Cluster Service: versionTimeout for a request of the list, channelTimeout for the creation or
// change of a cluster, which does not depend on the call.
const (
	versionTimeout = 3 * time.Second
	channelTimeout = time.Second
)

// versionCache holds the last list of versions that Cluster Service returned. It saves transferring an unchanged list, not
// asking for it. It is safe for concurrent use.
type versionCache struct {
	mu   sync.Mutex
	last clusterservice.OpenShiftVersions
}

// installableVersions returns the versions that Cluster Service can install now. If it does not answer within timeout, the
// result is an error and the last list, which is empty if there is none.
func (s *Server) installableVersions(ctx context.Context, timeout time.Duration) (clusterservice.OpenShiftVersions, error) {
	s.versionCache.mu.Lock()
	last := s.versionCache.last
	s.versionCache.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	list, err := s.Versions.OpenShiftVersions(ctx, last)
	if err != nil {
		return last, err
	}
	s.versionCache.mu.Lock()
	s.versionCache.last = list
	s.versionCache.mu.Unlock()
	return list, nil
}

// hasChannel reports whether Cluster Service can install a version, given as MAJOR.MINOR, from a channel group. While it does
// not answer, its last list counts. Without a list every channel exists, as in the published service: Cluster Service then
// rejects the version when it receives the change.
func (s *Server) hasChannel(ctx context.Context, channelGroup, minor string) bool {
	list, err := s.installableVersions(ctx, channelTimeout)
	return err != nil && len(list.Versions) == 0 || listed(list, channelGroup, minor)
}

// mayHaveChannel is hasChannel for a new cluster. It asks Cluster Service only if the last list does not have the version, so
// that creations do not wait for it.
func (s *Server) mayHaveChannel(ctx context.Context, channelGroup, minor string) bool {
	s.versionCache.mu.Lock()
	last := s.versionCache.last
	s.versionCache.mu.Unlock()
	return listed(last, channelGroup, minor) || s.hasChannel(ctx, channelGroup, minor)
}

func listed(list clusterservice.OpenShiftVersions, channelGroup, minor string) bool {
	return slices.ContainsFunc(list.Versions, func(version hub.OpenShiftVersion) bool {
		return version.ChannelGroup == channelGroup && strings.HasPrefix(version.Name, minor+".")
	})
}

// openShiftVersions returns the versions that Cluster Service can install now, as resources of the request's subscription.
func (s *Server) openShiftVersions(ctx context.Context, rq *request) ([]hub.OpenShiftVersion, error) {
	list, err := s.installableVersions(ctx, versionTimeout)
	if err != nil {
		return nil, apierror.New(apierror.Unavailable, "The versions cannot be read now. Repeat the request later.").WithCause(err)
	}
	versions := make([]hub.OpenShiftVersion, len(list.Versions))
	for i, version := range list.Versions {
		version.ID = s.locationResourceID(rq, "hcpOpenShiftVersions", version.Name)
		versions[i] = version
	}
	return versions, nil
}

func (s *Server) listOpenShiftVersions(ctx context.Context, rq *request) error {
	if err := s.checkLocation(rq); err != nil {
		return err
	}
	versions, err := s.openShiftVersions(ctx, rq)
	if err != nil {
		return err
	}
	var values []any
	for i := range versions {
		values = append(values, rq.version.EncodeOpenShiftVersion(&versions[i]))
	}
	return rq.writeList(values)
}

func (s *Server) getOpenShiftVersion(ctx context.Context, rq *request) error {
	if err := s.checkLocation(rq); err != nil {
		return err
	}
	versions, err := s.openShiftVersions(ctx, rq)
	if err != nil {
		return err
	}
	name := rq.param(otherParam)
	for i := range versions {
		if asciifold.Equal(versions[i].Name, name) {
			return rq.writeWithContentETag(rq.version.EncodeOpenShiftVersion(&versions[i]))
		}
	}
	return notFound(s.locationResourceID(rq, "hcpOpenShiftVersions", name))
}
