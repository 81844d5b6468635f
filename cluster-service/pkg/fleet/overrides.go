package fleet

import (
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// Paused is until when the cluster is paused, as far as anybody has said; zero when nobody has. A time that has passed
// pauses nothing, on the management cluster either: it need not be taken back.
func (c *Cluster) Paused() time.Time {
	if until := c.Overrides.GetPause().GetUntil(); until != nil {
		return until.AsTime()
	}
	return time.Time{}
}

// Pause pauses the cluster, in place of any pause before.
func (c *Cluster) Pause(now, until time.Time, actor *csv1.Actor) {
	c.overrides().Pause = &csv1.ClusterPause{Until: timestamp(until), Actor: actor, Time: timestamp(now)}
}

// Resume takes a pause back.
func (c *Cluster) Resume() { c.overrides().Pause = nil }

// SetSize overrides the size of the control plane; an empty size takes that back.
func (c *Cluster) SetSize(now time.Time, size string, actor *csv1.Actor) {
	c.overrides().Size = nil
	if size != "" {
		c.Overrides.Size = &csv1.ClusterSizeOverride{Size: size, Actor: actor, Time: timestamp(now)}
	}
}

func (c *Cluster) overrides() *csv1.ClusterOverrides {
	if c.Overrides == nil {
		c.Overrides = &csv1.ClusterOverrides{}
	}
	return c.Overrides
}

// RetryWorks makes all of an aggregate's works due now: the content of those that are wanted is published once more, a deletion is
// asked for once more. Refusals and back-offs are forgotten. It returns how many there are.
func (t *ClusterAggregate) RetryWorks() int {
	for _, w := range t.Works {
		w.Attempts, w.Error, w.Refused, w.RetryTime = 0, "", false, time.Time{}
		if !w.Deleting() {
			w.Desired++
		}
	}
	return len(t.Works)
}
