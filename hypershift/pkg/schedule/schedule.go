// Package schedule holds how long things take on a real management cluster, and turns "how long ago did this begin"
// into "how far may it have come". The offsets are those observed in captured runs; a Scale stretches them: 1 replays
// them, 0 lets everything happen as fast as its causes allow. Everything is a pure function of a persisted beginning
// and the present, so a runtime that was killed resumes where the schedule is, without a memory of its own.
package schedule

import "time"

// Scale multiplies every observed duration. It is never negative.
type Scale float64

// Of returns d as it lasts at this scale.
func (s Scale) Of(d time.Duration) time.Duration { return time.Duration(float64(d) * float64(s)) }

// Phase is how far the creation of a hosted control plane may have come. Phases are ordered.
type Phase int

// The phases of a creation, in order. Each names what is awaited while it lasts.
const (
	// Accepted: the HostedCluster is seen, no HostedControlPlane exists yet.
	Accepted Phase = iota
	// Infrastructure: services and routes are being set up.
	Infrastructure
	// Kubeconfig: the PKI and the kubeconfig are being made.
	Kubeconfig
	// EtcdMissing: etcd's StatefulSet is not there yet.
	EtcdMissing
	// EtcdQuorum: etcd waits for its quorum.
	EtcdQuorum
	// APIServerMissing: the API server's Deployment is not there yet.
	APIServerMissing
	// APIServerStarting: the API server is not available yet.
	APIServerStarting
	// LoadBalancer: the API server cannot be reached from outside yet.
	LoadBalancer
	// Components: everything that depends on the API server is being rolled out.
	Components
	// Done: nothing is awaited by the schedule.
	Done
)

// phaseStarts are the beginnings of the phases after the HostedCluster's creation, as observed.
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

// Wave is a set of control-plane components that become ready together, because they wait for the same dependency.
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

// createWaves are when the waves are rolled out in a creation, and upgradeWaves in an upgrade: three etcd members at
// 40-50 s each, then the API server's pods at 90 s each, then the rest.
var (
	createWaves  = [...]time.Duration{WaveFoundation: 135 * time.Second, WaveAPIServer: 150 * time.Second, WaveControllers: 220 * time.Second, WaveOperators: 260 * time.Second}
	upgradeWaves = [...]time.Duration{WaveFoundation: 140 * time.Second, WaveAPIServer: 410 * time.Second, WaveControllers: 450 * time.Second, WaveOperators: 480 * time.Second}
)

// Durations of single steps, as observed.
const (
	// NodeGeneratedPayload, NodeIgnition: a node pool's payload is generated, its first machine fetched its ignition.
	NodeGeneratedPayload = 33 * time.Second
	NodeIgnition         = 40 * time.Second
	// MachineReady: a machine is provisioned; NodeReady: its node is Ready and healthy.
	MachineReady = 54 * time.Second
	NodeReady    = 340 * time.Second
	// NodeDrain: a node is drained and its machine is gone.
	NodeDrain = 20 * time.Second
	// NodeUnhealthy: a node that stopped reporting is taken for unhealthy, and replaced where that is asked for.
	NodeUnhealthy = 8 * time.Minute
	// ScaleDown: fewer nodes would do for so long before the autoscaler takes one away.
	ScaleDown = 10 * time.Minute
	// KeyDeploy, KeyPromote and KeyMigrate: the API servers read with a new encryption key, write with it, and have written all
	// data anew.
	KeyDeploy  = 270 * time.Second
	KeyPromote = 270 * time.Second
	KeyMigrate = 60 * time.Second
	// CloudCleanup: the control plane has destroyed its cloud resources.
	CloudCleanup = 30 * time.Second
	// CloudTimeout: HyperShift goes on without having destroyed them.
	CloudTimeout = 10 * time.Minute
)

// Elapsed returns the phase that has been reached after elapsed, and how long until the next one; zero when there is
// none.
func (s Scale) Elapsed(elapsed time.Duration) (Phase, time.Duration) {
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

// Creation returns the waves that are rolled out elapsed after the creation, and how long until the next one.
func (s Scale) Creation(elapsed time.Duration) (Wave, time.Duration) {
	return s.waves(createWaves[:], elapsed)
}

// Upgrade is Creation for an upgrade that began elapsed ago. The components of a wave, of which size says how many there
// are, are rolled out one after the other: ahead is how many of the next wave's are.
func (s Scale) Upgrade(elapsed time.Duration, size func(Wave) int) (wave Wave, ahead int, wait time.Duration) {
	wave, wait = s.waves(upgradeWaves[:], elapsed)
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

// waves returns the last wave that is rolled out, -1 for none.
func (s Scale) waves(ends []time.Duration, elapsed time.Duration) (Wave, time.Duration) {
	for i, end := range ends {
		if wait := s.Of(end) - elapsed; wait > 0 {
			return Wave(i) - 1, wait
		}
	}
	return WaveOperators, 0
}

// Sooner returns the shorter of two waits, where zero means none.
func Sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
