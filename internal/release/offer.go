package release

import (
	"maps"
	"time"
)

// ChannelGroups lists the channel groups. A release has an offer for each group whose channel carries it, in this order.
var ChannelGroups = []string{StableGroup, "fast", "candidate", "nightly"}

// StableGroup is the channel group that names of offers omit.
const StableGroup = "stable"

// OldestCluster is the oldest version that clusters can be installed with.
var OldestCluster = Version{Major: 4, Minor: 20}

// Offer is a release in one channel group.
type Offer struct {
	Release      *Release
	ChannelGroup string
	// Enabled reports whether clusters can be installed with the release.
	Enabled bool
	// EndOfLife is the end of support of the release's minor version; zero if unknown.
	EndOfLife time.Time
}

// Name returns the version, followed by the channel group unless that is stable.
func (o Offer) Name() string {
	if o.ChannelGroup == StableGroup {
		return o.Release.Version.String()
	}
	return o.Release.Version.String() + "-" + o.ChannelGroup
}

// Offers returns the releases in their channel groups, the oldest release first. A channel group carries a release if the
// channel of the release's minor version in that group does.
func (c *Catalog) Offers() []Offer {
	var all []Offer
	for _, r := range c.Releases() {
		minor := r.Version.MinorID()
		for _, group := range ChannelGroups {
			if r.In(Channel(group, minor)) {
				all = append(all, Offer{Release: r, ChannelGroup: group, Enabled: r.Version.Compare(OldestCluster) >= 0, EndOfLife: c.EndOfLife(minor)})
			}
		}
	}
	return all
}

// WithEndOfLife returns a catalogue with the releases of c and the ends of support of other where c has none. Update graphs
// do not carry ends of support.
func (c *Catalog) WithEndOfLife(other *Catalog) *Catalog {
	merged := *c
	merged.ends = maps.Clone(other.ends)
	if merged.ends == nil {
		merged.ends = map[string]time.Time{}
	}
	maps.Copy(merged.ends, c.ends)
	return &merged
}
