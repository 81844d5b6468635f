package release_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/release"
)

// TestOffers: each release is offered once for each channel group whose channel of its minor version carries it.
func TestOffers(t *testing.T) {
	catalog, err := release.Default()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, offer := range catalog.Offers() {
		name, version := offer.Name(), offer.Release.Version
		if seen[name] {
			t.Errorf("%s is offered twice", name)
		}
		seen[name] = true
		if !offer.Release.In(offer.ChannelGroup + "-" + version.MinorID()) {
			t.Errorf("%s is not in the channel %s-%s", name, offer.ChannelGroup, version.MinorID())
		}
		if want := strings.TrimSuffix(version.String()+"-"+offer.ChannelGroup, "-stable"); name != want {
			t.Errorf("the name of %s in %s is %s", version, offer.ChannelGroup, name)
		}
		if enabled := version.Major > 4 || version.Minor >= 20; offer.Enabled != enabled {
			t.Errorf("%s is enabled: %v", name, offer.Enabled)
		}
		if offer.EndOfLife.IsZero() {
			t.Errorf("%s has no end of support", name)
		}
	}
	for _, name := range []string{"4.20.8", "4.20.8-fast", "4.22.2-candidate"} {
		if !seen[name] {
			t.Errorf("%s is not offered: %s", name, fmt.Sprint(seen))
		}
	}
}

// TestWithEndOfLife: a catalogue of update graphs gets the ends of support of the configured one.
func TestWithEndOfLife(t *testing.T) {
	configured, err := release.Default()
	if err != nil {
		t.Fatal(err)
	}
	graphs := map[string]*release.Graph{}
	for _, channel := range configured.Channels() {
		graphs[channel] = configured.Graph(channel, "multi")
	}
	catalog, _, err := release.FromGraphs(graphs)
	if err != nil {
		t.Fatal(err)
	}
	if end := catalog.EndOfLife("4.20"); !end.IsZero() {
		t.Fatalf("a catalogue of graphs has the end of support %s", end)
	}
	if got, want := catalog.WithEndOfLife(configured).EndOfLife("4.20"), configured.EndOfLife("4.20"); !got.Equal(want) || want.IsZero() {
		t.Errorf("the end of support is %s, want %s", got, want)
	}
}
