package service

import (
	"testing"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/updategraph"
	"github.com/hcpmesh/hcpmesh/internal/release"
)

// TestListOpenShiftVersions: the list has the versions that a cluster can be created with, and is returned again only if it
// has changed.
func TestListOpenShiftVersions(t *testing.T) {
	catalog, err := release.Default()
	if err != nil {
		t.Fatal(err)
	}
	s := New(Options{Releases: updategraph.Fixed(catalog)})
	list, err := s.ListOpenShiftVersions(t.Context(), &csv1.ListOpenShiftVersionsRequest{})
	if err != nil || list.GetNotModified() || list.GetEtag() == "" || len(list.GetVersions()) == 0 {
		t.Fatalf("got %v, %v", list, err)
	}
	for _, version := range list.GetVersions() {
		parsed, err := release.ParseVersion(version.GetVersion())
		if err != nil {
			t.Fatal(err)
		}
		if chosen, err := s.newestRelease(&csv1.ClusterSpec{Version: &csv1.Version{Id: parsed.MinorID(), ChannelGroup: version.GetChannelGroup()}}); err != nil || chosen.Version.Compare(parsed) < 0 {
			t.Errorf("a cluster of version %s in channel group %s gets %v, %v", parsed.MinorID(), version.GetChannelGroup(), chosen, err)
		}
	}
	again, err := s.ListOpenShiftVersions(t.Context(), &csv1.ListOpenShiftVersionsRequest{Etag: list.GetEtag()})
	if err != nil || !again.GetNotModified() || len(again.GetVersions()) > 0 || again.GetEtag() != list.GetEtag() {
		t.Errorf("with the etag of the list: %v, %v", again, err)
	}
	other, err := s.ListOpenShiftVersions(t.Context(), &csv1.ListOpenShiftVersionsRequest{Etag: "other"})
	if err != nil || other.GetNotModified() || len(other.GetVersions()) != len(list.GetVersions()) {
		t.Errorf("with another etag: %v, %v", other, err)
	}
}
