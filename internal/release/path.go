package release

import "slices"

// Update is a release to which an upgrade edge leads.
type Update struct {
	*Release
	// Risks are the known risks; empty for an update that is recommended to all clusters.
	Risks []Risk
}

// Updates returns the releases to which edges lead from a release within a channel, newest first. It returns none if the
// channel does not carry the release, and no refused releases.
func (c *Catalog) Updates(from Version, channel string) []Update {
	start, known := c.start(from)
	if !known || !start.In(channel) {
		return nil
	}
	var updates []Update
	for _, r := range slices.Backward(c.releases) {
		if e := c.edges[between{from, r.Version}]; e != nil && r.In(channel) {
			updates = append(updates, Update{Release: r, Risks: e.risks})
		}
	}
	return updates
}

// Path returns the shortest path from one release to another within a channel, without the start, and nil when there is none.
// Among paths of equal length it prefers the one that first goes to the newest release of the current minor version, so that
// the fixes of that minor version run before the next one. With risky it uses edges with risks, but only if no path without
// risks exists.
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
		// Newest first, releases of the current minor version before others.
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

// Reachable returns the releases of a channel to which a path of recommended edges leads, newest first.
func (c *Catalog) Reachable(from Version, channel string) []*Release {
	var found []*Release
	for _, r := range slices.Backward(c.releases) {
		if r.In(channel) && c.path(from, r.Version, channel, false) != nil {
			found = append(found, r)
		}
	}
	return found
}
