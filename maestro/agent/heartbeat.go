package agent

import (
	"context"
	"errors"
	"time"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/event"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/mqttlink"
)

// heartbeatInterval is the default of Options.Heartbeat.
const heartbeatInterval = 10 * time.Second

// sendHeartbeats sends a heartbeat at an interval until ctx ends, so that an agent with nothing to report differs from one that is
// away. Published servers do not know heartbeats of agents, so it sends none before the server has acknowledged a resync, which
// only hcpmesh's server does.
func (u *uplink) sendHeartbeats(ctx context.Context, interval time.Duration) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		if u.resyncAcknowledged() {
			err := u.link.Publish(ctx, maestroapi.AgentEventsTopic(u.source, u.consumer), event.EncodeHeartbeat(u.agent, u.consumer))
			if err != nil && ctx.Err() == nil && !errors.Is(err, mqttlink.ErrDown) {
				u.log.WarnContext(ctx, "sending a heartbeat failed", logkey.Error, err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-u.acknowledgements:
		}
	}
}

func (u *uplink) resyncAcknowledged() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.acknowledged
}
