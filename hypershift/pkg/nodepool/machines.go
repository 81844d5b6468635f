package nodepool

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/schedule"
)

// Machine is one machine of a node pool, as it is stored in the pool's ConfigMap. Its node has the same name.
type Machine struct {
	Name string `json:"name"`
	// Version and Kubelet are the versions of its release.
	Version string `json:"version"`
	Kubelet string `json:"kubelet"`
	// Config and Template identify the configuration and the machine template. A change of either replaces the machine.
	Config   string `json:"config"`
	Template string `json:"template"`
	// Created is when the machine was created or last updated in place.
	Created time.Time `json:"created"`
	// Ready is when its node was first allowed to be Ready; zero before.
	Ready time.Time `json:"ready,omitzero"`
	// Unhealthy is since when its kubelet does not report; zero while it does.
	Unhealthy time.Time `json:"unhealthy,omitzero"`
	// Deleted is when it was marked for deletion. It is drained and then removed.
	Deleted time.Time `json:"deleted,omitzero"`
	// VMSize and Zone are the settings at its creation. The pool's settings may have changed since.
	VMSize string `json:"vmSize,omitempty"`
	Zone   string `json:"zone,omitempty"`
}

func (m *Machine) active() bool { return m.Deleted.IsZero() }
func (m *Machine) ready() bool  { return m.active() && !m.Ready.IsZero() && m.Unhealthy.IsZero() }

// target is the desired state of the machines of a pool.
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
	// autoRepair enables the replacement of unhealthy machines. unhealthy holds the names of machines whose kubelets do
	// not report.
	autoRepair bool
	unhealthy  map[string]bool
	// remainingPods counts the pods that block the removal of a machine, pods those that run on any machine, both by
	// node.
	remainingPods, pods map[string]int
}

// maxUnhealthy is the largest number of unhealthy machines that are replaced. More indicate another problem.
const maxUnhealthy = 2

func (t *target) matches(m *Machine) bool {
	return m.Version == t.version && m.Config == t.config && m.Template == t.template
}

// step makes one step towards the target with all changes that are due at now. It returns the machines, and the time
// until the next change is due; zero if only an event causes another change. A machine that becomes Ready in a step
// counts as available only in the next step, after its node is really Ready.
func step(machines []Machine, t target, scale schedule.Scale, now time.Time, newName func() string) ([]Machine, time.Duration) {
	next := slices.Clone(machines)
	var wait time.Duration
	if t.controlPlaneReady {
		wait = repair(next, t, scale, now)
	}
	available := map[string]bool{} // machines whose nodes were Ready before this step
	for i := range next {
		if next[i].ready() {
			available[next[i].Name] = true
		}
	}
	next = slices.DeleteFunc(next, func(m Machine) bool {
		if m.active() {
			return false
		}
		left := scale.Of(schedule.NodeDrain) - now.Sub(m.Deleted)
		if t.drainStuck || t.remainingPods[m.Name] > 0 {
			// A drain that cannot finish is given up after the timeout. Without a timeout it continues forever.
			if t.drainTimeout == 0 {
				return false
			}
			left = t.drainTimeout - now.Sub(m.Deleted)
		}
		if left > 0 {
			wait = schedule.ShorterWait(wait, left)
			return false
		}
		return true
	})
	if !t.controlPlaneReady {
		return next, wait // machines cannot be provisioned without a control plane
	}
	next = grow(next, t, now, newName)
	for i := range next {
		m := &next[i]
		if !m.active() || !m.Ready.IsZero() || t.neverIgnites {
			continue
		}
		if left := scale.Of(schedule.NodeReady) - now.Sub(m.Created); left > 0 {
			wait = schedule.ShorterWait(wait, left)
			if left = scale.Of(schedule.MachineReady) - now.Sub(m.Created); left > 0 {
				wait = schedule.ShorterWait(wait, left)
			}
			continue
		}
		m.Ready = now
	}
	if t.inPlace {
		updateInPlace(next, t, available, now)
	} else {
		shrink(next, t, available, now)
	}
	return next, wait
}

// repair stores which machines are unhealthy, and marks those for deletion that have been unhealthy for long enough,
// unless there are too many. They are drained, but without waiting for their kubelets.
func repair(machines []Machine, t target, scale schedule.Scale, now time.Time) (wait time.Duration) {
	var unhealthy []*Machine
	for i := range machines {
		m := &machines[i]
		switch {
		case !m.active() || m.Ready.IsZero():
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
			wait = schedule.ShorterWait(wait, left)
			continue
		}
		m.Deleted = now
	}
	return wait
}

// tooManyUnhealthy reports whether repair replaces no machines because too many are unhealthy.
func tooManyUnhealthy(machines []Machine, t target) bool {
	count := 0
	for i := range machines {
		if machines[i].active() && !machines[i].Unhealthy.IsZero() {
			count++
		}
	}
	return t.autoRepair && count > maxUnhealthy
}

// grow adds missing machines with the target's settings, within maxSurge.
func grow(machines []Machine, t target, now time.Time, newName func() string) []Machine {
	active, current := 0, 0
	for i := range machines {
		if !machines[i].active() {
			continue
		}
		active++
		if t.matches(&machines[i]) {
			current++
		}
	}
	limit := t.replicas
	if active > current && !t.onDelete && !t.inPlace {
		limit += t.maxSurge
	}
	for current < t.replicas && active < limit {
		machines = append(machines, Machine{Name: newName(), Version: t.version, Kubelet: t.kubelet, Config: t.config, Template: t.template, Created: now,
			VMSize: t.vmSize, Zone: t.zone})
		current++
		active++
	}
	return machines
}

// shrink marks machines for deletion: those above the replicas, and outdated ones as far as maxUnavailable allows.
func shrink(machines []Machine, t target, available map[string]bool, now time.Time) {
	var active, outdated []*Machine
	for i := range machines {
		if !machines[i].active() {
			continue
		}
		active = append(active, &machines[i])
		if !t.matches(&machines[i]) {
			outdated = append(outdated, &machines[i])
		}
	}
	remove := func(m *Machine) {
		m.Deleted = now
		delete(available, m.Name)
	}
	// Outdated machines are deleted first, then those that are not Ready, then those with the fewest pods, then the
	// youngest.
	slices.SortStableFunc(active, func(a, b *Machine) int {
		return cmp.Or(falseFirst(t.matches(a), t.matches(b)), falseFirst(a.ready(), b.ready()), cmp.Compare(t.pods[a.Name], t.pods[b.Name]), b.Created.Compare(a.Created), cmp.Compare(a.Name, b.Name))
	})
	surplus := len(active) - t.replicas
	if len(outdated) > 0 && !t.onDelete {
		surplus -= t.maxSurge // the surge is needed until the outdated machines are gone
	}
	for _, m := range active[:max(0, surplus)] {
		remove(m)
	}
	if t.onDelete {
		return
	}
	for _, m := range outdated {
		if !m.active() {
			continue
		}
		if m.ready() && len(available)-1 < t.replicas-t.maxUnavailable {
			continue
		}
		remove(m)
	}
}

// updateInPlace updates outdated machines in place, as many at the same time as may be unavailable.
func updateInPlace(machines []Machine, t target, available map[string]bool, now time.Time) {
	surplus := -t.replicas
	for i := range machines {
		if machines[i].active() {
			surplus++
		}
	}
	for i := len(machines) - 1; i >= 0 && surplus > 0; i-- {
		if machines[i].active() {
			machines[i].Deleted = now
			surplus--
		}
	}
	for i := range machines {
		m := &machines[i]
		if !m.active() || t.matches(m) || m.ready() && len(available)-1 < t.replicas-t.maxUnavailable {
			continue
		}
		delete(available, m.Name)
		m.Version, m.Kubelet, m.Config, m.Template, m.Created, m.Ready = t.version, t.kubelet, t.config, t.template, now, time.Time{}
	}
}

// falseFirst compares booleans; false is less than true.
func falseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// converged reports whether the machines match the target.
func converged(machines []Machine, t target) bool {
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
