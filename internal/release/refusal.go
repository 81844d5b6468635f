package release

import "slices"

// Refusal is a release that is not accepted. A refused release is never installed, and no upgrade leads to it. Clusters that run it
// can be upgraded to accepted releases.
type Refusal struct {
	*Release
	// Reason is why the release is not accepted. It is an error that callers can return.
	Reason error
}

// Without returns a catalogue without the releases for whose digests refused has a reason. The catalogue lists them as refusals.
func (c *Catalog) Without(refused map[string]error) *Catalog {
	accepted := *c
	accepted.releases, accepted.refused = nil, nil
	for _, r := range c.releases {
		if reason := refused[r.Digest]; reason != nil {
			accepted.refused = append(accepted.refused, Refusal{Release: r, Reason: reason})
		} else {
			accepted.releases = append(accepted.releases, r)
		}
	}
	return &accepted
}

// Refusals returns the releases that are not accepted, oldest first.
func (c *Catalog) Refusals() []Refusal { return slices.Clone(c.refused) }

// RefusalOf returns the refusal of a full version.
func (c *Catalog) RefusalOf(version string) (Refusal, bool) {
	i := slices.IndexFunc(c.refused, func(r Refusal) bool { return r.Version.String() == version })
	if i < 0 {
		return Refusal{}, false
	}
	return c.refused[i], true
}

// NewestRefusal returns the refusal of the newest refused release of a minor version in a channel group.
func (c *Catalog) NewestRefusal(minor, channelGroup string) (Refusal, bool) {
	channel := Channel(channelGroup, minor)
	for _, r := range slices.Backward(c.refused) {
		if r.Version.MinorID() == minor && r.In(channel) {
			return r, true
		}
	}
	return Refusal{}, false
}

// start returns a release from which edges lead to others: an accepted or a refused one.
func (c *Catalog) start(v Version) (*Release, bool) {
	if r, known := c.find(v); known {
		return r, true
	}
	refusal, known := c.RefusalOf(v.String())
	return refusal.Release, known
}
