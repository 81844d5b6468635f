// Package schedule defines how long the steps of HyperShift take, and computes from the time since a beginning which
// step may have been reached. The durations were observed on real management clusters. A Scale multiplies them: 1
// replays them, 0 makes each step as fast as its causes allow. All functions are pure functions of a stored beginning
// and the present time, so a runtime that was killed continues where the schedule is.
package schedule

import "time"

// Scale is a factor on all observed durations. It is never negative.
type Scale float64

// Of returns the duration d at this scale.
func (s Scale) Of(d time.Duration) time.Duration { return time.Duration(float64(d) * float64(s)) }

// Phase is a step of the creation of a hosted control plane. Phases are ordered.
type Phase int

// The phases of a creation, in order. The comment of each states what the creation waits for.
const (
	// Accepted: the HostedCluster was read; no HostedControlPlane exists yet.
	Accepted Phase = iota
	// Infrastructure: services and routes are being created.
	Infrastructure
	// Kubeconfig: the PKI and the kubeconfig are being created.
	Kubeconfig
	// EtcdMissing: etcd's StatefulSet does not exist yet.
	EtcdMissing
	// EtcdQuorum: etcd waits for its quorum.
	EtcdQuorum
	// APIServerMissing: the API server's Deployment does not exist yet.
	APIServerMissing
	// APIServerStarting: the API server is not available yet.
	APIServerStarting
	// LoadBalancer: the API server is not reachable from outside yet.
	LoadBalancer
	// Components: the components that depend on the API server are being rolled out.
	Components
	// Done: the schedule is complete.
	Done
)

// phaseStarts holds the observed start of each phase, relative to the creation of the HostedCluster.
var phaseStarts = [...]time.Duration{
	Accepted:          0,
	Infrastructure:    15 * time.Second,
	Kubeconfig:        60 * time.Second,
	EtcdMissing:       100 * time.Second,
	EtcdQuorum:        105 * time.Second,
	APIServerMissing:  135 * time.Second,
	APIServerStarting: 140 * time.Second,
	LoadBalancer:      150 * time.Second,
	Components:        160 * time.Second,
	Done:              300 * time.Second,
}

// Wave is a set of control-plane components that become ready together, because they have the same dependency.
type Wave int

// The waves in order of their dependencies.
const (
	// WaveFoundation has no dependency: the PKI operator, etcd, the feature gates.
	WaveFoundation Wave = iota
	// WaveAPIServer is the API server itself.
	WaveAPIServer
	// WaveControllers needs the API server.
	WaveControllers
	// WaveOperators needs the OpenShift API server.
	WaveOperators
)

// createWaves holds the time at which each wave is rolled out in a creation, upgradeWaves the same for an upgrade:
// three etcd members of 40-50 s each, then the API server's pods of 90 s each, then the rest.
var (
	createWaves  = [...]time.Duration{WaveFoundation: 135 * time.Second, WaveAPIServer: 150 * time.Second, WaveControllers: 220 * time.Second, WaveOperators: 260 * time.Second}
	upgradeWaves = [...]time.Duration{WaveFoundation: 140 * time.Second, WaveAPIServer: 410 * time.Second, WaveControllers: 450 * time.Second, WaveOperators: 480 * time.Second}
)

// Durations of single steps, as observed.
const (
	// NodeIgnition: the first machine of a node pool has fetched its ignition configuration.
	NodeIgnition = 40 * time.Second
	// MachineReady: a machine is provisioned; NodeReady: its node is Ready and healthy.
	MachineReady = 54 * time.Second
	NodeReady    = 340 * time.Second
	// NodeDrain: a node is drained and its machine is deleted.
	NodeDrain = 20 * time.Second
	// NodeUnhealthy: a node that stopped reporting counts as unhealthy, and is replaced if auto-repair is enabled.
	NodeUnhealthy = 8 * time.Minute
	// ScaleDown: the autoscaler removes a node after fewer nodes were sufficient for this time.
	ScaleDown = 10 * time.Minute
	// KeyDeploy: the API servers read with a new encryption key. KeyPromote: they write with it. KeyMigrate: all data
	// has been rewritten.
	KeyDeploy  = 270 * time.Second
	KeyPromote = 270 * time.Second
	KeyMigrate = 60 * time.Second
	// CloudCleanup: the control plane has destroyed its cloud resources.
	CloudCleanup = 30 * time.Second
	// CloudTimeout: HyperShift continues without having destroyed them.
	CloudTimeout = 10 * time.Minute
)

// Start returns the time at which a phase starts, relative to the creation of the HostedCluster.
func (s Scale) Start(phase Phase) time.Duration { return s.Of(phaseStarts[phase]) }

// PhaseAfter returns the phase that is reached after elapsed, and the time until the next phase; zero if there is none.
func (s Scale) PhaseAfter(elapsed time.Duration) (Phase, time.Duration) {
	for phase := Done; ; phase-- {
		if elapsed < s.Of(phaseStarts[phase]) && phase > Accepted {
			continue
		}
		if phase == Done {
			return Done, 0
		}
		return phase, s.Of(phaseStarts[phase+1]) - elapsed
	}
}

// Creation returns the last wave that is rolled out when elapsed has passed since the creation, -1 for none, and the
// time until the next wave.
func (s Scale) Creation(elapsed time.Duration) (Wave, time.Duration) {
	return s.lastWave(createWaves[:], elapsed)
}

// Upgrade is like Creation for an upgrade that began elapsed ago. The components of a wave are rolled out one after the
// other; size returns their number. ahead is the number of components of the next wave that are rolled out.
func (s Scale) Upgrade(elapsed time.Duration, size func(Wave) int) (wave Wave, ahead int, wait time.Duration) {
	wave, wait = s.lastWave(upgradeWaves[:], elapsed)
	if wave == WaveOperators {
		return wave, 0, wait
	}
	next, began := wave+1, time.Duration(0)
	if next > WaveFoundation {
		began = upgradeWaves[next-1]
	}
	n := size(next)
	for ; ahead < n-1; ahead++ {
		end := began + (upgradeWaves[next]-began)*time.Duration(ahead+1)/time.Duration(n)
		if left := s.Of(end) - elapsed; left > 0 {
			return wave, ahead, left
		}
	}
	return wave, ahead, wait
}

// lastWave returns the last wave that is rolled out, -1 for none.
func (s Scale) lastWave(ends []time.Duration, elapsed time.Duration) (Wave, time.Duration) {
	for i, end := range ends {
		if wait := s.Of(end) - elapsed; wait > 0 {
			return Wave(i) - 1, wait
		}
	}
	return WaveOperators, 0
}

// ShorterWait returns the shorter of two waits. Zero means no wait.
func ShorterWait(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
