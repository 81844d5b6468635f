package release

import "slices"

// Update is a release that may be moved to.
type Update struct {
	*Release
	// Risks are what is known to go wrong; empty for an update that is recommended to everybody.
	Risks []Risk
}

// Updates lists where one may go from a release within a channel, newest first. A channel that does not carry the release
// leads nowhere from it.
func (c *Catalog) Updates(from Version, channel string) []Update {
	start, known := c.find(from)
	if !known || !start.In(channel) {
		return nil
	}
	var updates []Update
	for _, r := range slices.Backward(c.releases) {
		if w := c.edges[edge{from, r.Version}]; w != nil && r.In(channel) {
			updates = append(updates, Update{Release: r, Risks: w.risks})
		}
	}
	return updates
}

// Path is the shortest way from one release to another within a channel, without the start; nil when there is none. Of
// ways that are equally short it takes the one that first goes to the newest release of the minor version at hand: what
// was mended there is running when the next minor version comes. With risky, ways with risks count as well, but only when
// there is no other.
func (c *Catalog) Path(from, to Version, channel string, risky bool) []Update {
	if path := c.path(from, to, channel, false); path != nil || !risky {
		return path
	}
	return c.path(from, to, channel, true)
}

func (c *Catalog) path(from, to Version, channel string, risky bool) []Update {
	if from.Compare(to) >= 0 {
		return nil
	}
	type visit struct {
		Update
		before *visit
	}
	seen := map[Version]bool{from: true}
	queue := []*visit{{Update: Update{Release: &Release{Version: from}}}}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		next := c.Updates(at.Version, channel)
		// The newest first, those of the minor version at hand before others.
		slices.SortStableFunc(next, func(a, b Update) int {
			switch x, y := a.Version.SameMinor(at.Version), b.Version.SameMinor(at.Version); {
			case x && !y:
				return -1
			case y && !x:
				return 1
			}
			return 0
		})
		for _, u := range next {
			if seen[u.Version] || u.Version.Compare(to) > 0 || len(u.Risks) > 0 && !risky {
				continue
			}
			seen[u.Version] = true
			v := &visit{Update: u, before: at}
			if u.Version == to {
				var path []Update
				for ; v.before != nil; v = v.before {
					path = append(path, v.Update)
				}
				slices.Reverse(path)
				return path
			}
			queue = append(queue, v)
		}
	}
	return nil
}

// Reachable lists the releases of a channel to which a way leads, recommended at every step, newest first.
func (c *Catalog) Reachable(from Version, channel string) []*Release {
	var found []*Release
	for _, r := range slices.Backward(c.releases) {
		if r.In(channel) && c.path(from, r.Version, channel, false) != nil {
			found = append(found, r)
		}
	}
	return found
}
