package service

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/release"
)

// versionList is the list of versions of the last catalogue that was asked for. It is safe for concurrent use.
type versionList struct {
	mu       sync.Mutex
	catalog  *release.Catalog
	response *csv1.ListOpenShiftVersionsResponse
}

// of returns the versions of a catalogue. Catalogues never change, so that a list is made once for each.
func (l *versionList) of(catalog *release.Catalog) (*csv1.ListOpenShiftVersionsResponse, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.catalog == catalog {
		return l.response, nil
	}
	response := &csv1.ListOpenShiftVersionsResponse{}
	for _, offer := range catalog.Offers() {
		version := &csv1.OpenShiftVersion{Name: offer.Name(), Version: offer.Release.Version.String(), ChannelGroup: offer.ChannelGroup, Enabled: offer.Enabled}
		if !offer.EndOfLife.IsZero() {
			version.EndOfLifeTime = timestamppb.New(offer.EndOfLife)
		}
		response.Versions = append(response.Versions, version)
	}
	content, err := proto.MarshalOptions{Deterministic: true}.Marshal(response)
	if err != nil {
		return nil, err
	}
	hash := sha256.Sum256(content)
	response.Etag = hex.EncodeToString(hash[:16])
	l.catalog, l.response = catalog, response
	return response, nil
}

// ListOpenShiftVersions returns the versions that clusters can be installed with: the releases of the newest catalogue,
// from which ApplyCluster chooses.
func (s *Service) ListOpenShiftVersions(ctx context.Context, r *csv1.ListOpenShiftVersionsRequest) (*csv1.ListOpenShiftVersionsResponse, error) {
	catalog := s.o.Releases.Catalog()
	if refusals := catalog.Refusals(); len(catalog.Releases()) == 0 && len(refusals) > 0 {
		// A client must not take this for a region without versions.
		return nil, s.answer(ctx, refusedRelease(refusals[0]))
	}
	response, err := s.versions.of(catalog)
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	if r.GetEtag() == response.GetEtag() {
		return &csv1.ListOpenShiftVersionsResponse{Etag: response.GetEtag(), NotModified: true}, nil
	}
	return response, nil
}
