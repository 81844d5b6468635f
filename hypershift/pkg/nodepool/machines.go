package nodepool

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/schedule"
)

// Machine is one machine of a node pool, as it is recorded in the pool's ConfigMap. Its node has the same name.
type Machine struct {
	Name string `json:"name"`
	// Version and Kubelet are those of the release it runs.
	Version string `json:"version"`
	Kubelet string `json:"kubelet"`
	// Config identifies everything else that a change of which replaces the machine: configuration and template.
	Config   string `json:"config"`
	Template string `json:"template"`
	// Created is when its present life began: it was made, or updated in place.
	Created time.Time `json:"created"`
	// Ready is when its node was first allowed to be Ready; zero before.
	Ready time.Time `json:"ready,omitzero"`
	// Unhealthy is since when its kubelet does not report; zero while it does.
	Unhealthy time.Time `json:"unhealthy,omitzero"`
	// Deleted is when it was told to go; it is drained until it is gone.
	Deleted time.Time `json:"deleted,omitzero"`
	// VMSize and Zone are what it was made with; what the pool asks for may have changed since.
	VMSize string `json:"vmSize,omitempty"`
	Zone   string `json:"zone,omitempty"`
}

func (m *Machine) alive() bool { return m.Deleted.IsZero() }
func (m *Machine) ready() bool { return m.alive() && !m.Ready.IsZero() && m.Unhealthy.IsZero() }

// target is what the machines of a pool shall become.
type target struct {
	replicas                 int
	version, kubelet         string
	config, template         string
	maxSurge, maxUnavailable int
	inPlace, onDelete        bool
	drainTimeout             time.Duration
	neverIgnites, drainStuck bool
	controlPlaneReady        bool
	vmSize, zone             string
	// autoRepair has unhealthy machines replaced; unhealthy names those whose kubelets do not report.
	autoRepair bool
	unhealthy  map[string]bool
	// undrained counts the pods that keep a leaving machine from being gone; pods those that run on any machine.
	undrained, pods map[string]int
}

// maxUnhealthy is how many unhealthy machines are replaced; when there are more, something else is wrong.
const maxUnhealthy = 2

func (t *target) matches(m *Machine) bool {
	return m.Version == t.version && m.Config == t.config && m.Template == t.template
}

// step moves machines on by what is due at now, and returns them with the time until more is due by itself; zero if
// only an event brings more. One call takes one step of a rollout: what it makes Ready, it relies on only when called
// again, after the node has really become so.
func step(machines []Machine, t target, scale schedule.Scale, now time.Time, newName func() string) ([]Machine, time.Duration) {
	next := slices.Clone(machines)
	var wait time.Duration
	if t.controlPlaneReady {
		wait = repair(next, t, scale, now)
	}
	relied := map[string]bool{} // machines whose nodes were Ready before this step
	for i := range next {
		if next[i].ready() {
			relied[next[i].Name] = true
		}
	}
	next = slices.DeleteFunc(next, func(m Machine) bool {
		if m.alive() {
			return false
		}
		left := scale.Of(schedule.NodeDrain) - now.Sub(m.Deleted)
		if t.drainStuck || t.undrained[m.Name] > 0 {
			// A drain that cannot end is given up after the timeout; without one it is waited for for ever.
			if t.drainTimeout == 0 {
				return false
			}
			left = t.drainTimeout - now.Sub(m.Deleted)
		}
		if left > 0 {
			wait = schedule.Sooner(wait, left)
			return false
		}
		return true
	})
	if !t.controlPlaneReady {
		return next, wait // machines cannot be provisioned without one
	}
	next = grow(next, t, now, newName)
	for i := range next {
		m := &next[i]
		if !m.alive() || !m.Ready.IsZero() || t.neverIgnites {
			continue
		}
		if left := scale.Of(schedule.NodeReady) - now.Sub(m.Created); left > 0 {
			wait = schedule.Sooner(wait, left)
			if left = scale.Of(schedule.MachineReady) - now.Sub(m.Created); left > 0 {
				wait = schedule.Sooner(wait, left)
			}
			continue
		}
		m.Ready = now
	}
	if t.inPlace {
		updateInPlace(next, t, relied, now)
	} else {
		shrink(next, t, relied, now)
	}
	return next, wait
}

// repair notes which machines are unhealthy, and tells those to go that have been so for long enough, unless they are too
// many. Drained they are as far as their pods can be; nobody waits for their kubelets.
func repair(machines []Machine, t target, scale schedule.Scale, now time.Time) (wait time.Duration) {
	var unhealthy []*Machine
	for i := range machines {
		m := &machines[i]
		switch {
		case !m.alive() || m.Ready.IsZero():
			continue
		case !t.unhealthy[m.Name]:
			m.Unhealthy = time.Time{}
			continue
		case m.Unhealthy.IsZero():
			m.Unhealthy = now
		}
		unhealthy = append(unhealthy, m)
	}
	if !t.autoRepair || len(unhealthy) > maxUnhealthy {
		return 0
	}
	for _, m := range unhealthy {
		if left := scale.Of(schedule.NodeUnhealthy) - now.Sub(m.Unhealthy); left > 0 {
			wait = schedule.Sooner(wait, left)
			continue
		}
		m.Deleted = now
	}
	return wait
}

// tooManyUnhealthy says whether repair has given up.
func tooManyUnhealthy(machines []Machine, t target) bool {
	count := 0
	for i := range machines {
		if machines[i].alive() && !machines[i].Unhealthy.IsZero() {
			count++
		}
	}
	return t.autoRepair && count > maxUnhealthy
}

// grow adds machines: as many of the target as are missing, within the surge.
func grow(machines []Machine, t target, now time.Time, newName func() string) []Machine {
	alive, current := 0, 0
	for i := range machines {
		if !machines[i].alive() {
			continue
		}
		alive++
		if t.matches(&machines[i]) {
			current++
		}
	}
	limit := t.replicas
	if alive > current && !t.onDelete && !t.inPlace {
		limit += t.maxSurge
	}
	for current < t.replicas && alive < limit {
		machines = append(machines, Machine{Name: newName(), Version: t.version, Kubelet: t.kubelet, Config: t.config, Template: t.template, Created: now,
			VMSize: t.vmSize, Zone: t.zone})
		current++
		alive++
	}
	return machines
}

// shrink tells machines to go: those above the replicas, and those that are outdated as far as availability allows.
func shrink(machines []Machine, t target, relied map[string]bool, now time.Time) {
	var alive, outdated []*Machine
	for i := range machines {
		if !machines[i].alive() {
			continue
		}
		alive = append(alive, &machines[i])
		if !t.matches(&machines[i]) {
			outdated = append(outdated, &machines[i])
		}
	}
	remove := func(m *Machine) {
		m.Deleted = now
		delete(relied, m.Name)
	}
	// Outdated machines go first, then those that are not Ready, then those with the fewest pods, then the youngest.
	slices.SortStableFunc(alive, func(a, b *Machine) int {
		return cmp.Or(boolean(t.matches(a), t.matches(b)), boolean(a.ready(), b.ready()), cmp.Compare(t.pods[a.Name], t.pods[b.Name]), b.Created.Compare(a.Created), cmp.Compare(a.Name, b.Name))
	})
	surplus := len(alive) - t.replicas
	if len(outdated) > 0 && !t.onDelete {
		surplus -= t.maxSurge // the surge is needed until the outdated are gone
	}
	for _, m := range alive[:max(0, surplus)] {
		remove(m)
	}
	if t.onDelete {
		return
	}
	for _, m := range outdated {
		if !m.alive() {
			continue
		}
		if m.ready() && len(relied)-1 < t.replicas-t.maxUnavailable {
			continue
		}
		remove(m)
	}
}

// updateInPlace gives outdated machines a new life, as many at once as may be unavailable.
func updateInPlace(machines []Machine, t target, relied map[string]bool, now time.Time) {
	surplus := -t.replicas
	for i := range machines {
		if machines[i].alive() {
			surplus++
		}
	}
	for i := len(machines) - 1; i >= 0 && surplus > 0; i-- {
		if machines[i].alive() {
			machines[i].Deleted = now
			surplus--
		}
	}
	for i := range machines {
		m := &machines[i]
		if !m.alive() || t.matches(m) || m.ready() && len(relied)-1 < t.replicas-t.maxUnavailable {
			continue
		}
		delete(relied, m.Name)
		m.Version, m.Kubelet, m.Config, m.Template, m.Created, m.Ready = t.version, t.kubelet, t.config, t.template, now, time.Time{}
	}
}

// boolean orders false before true.
func boolean(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// settled reports whether the machines are what the target asks for.
func settled(machines []Machine, t target) bool {
	ready := 0
	for i := range machines {
		if !machines[i].ready() || !t.matches(&machines[i]) && !t.onDelete {
			return false
		}
		ready++
	}
	return ready == t.replicas
}

const machinesKey = "machines.json"

func encodeMachines(machines []Machine) (map[string]string, error) {
	text, err := json.Marshal(machines)
	if err != nil {
		return nil, fmt.Errorf("encoding machines: %w", err)
	}
	return map[string]string{machinesKey: string(text)}, nil
}

func decodeMachines(data map[string]string) ([]Machine, error) {
	if data[machinesKey] == "" {
		return nil, nil
	}
	var machines []Machine
	if err := json.Unmarshal([]byte(data[machinesKey]), &machines); err != nil {
		return nil, fmt.Errorf("decoding machines: %w", err)
	}
	return machines, nil
}
