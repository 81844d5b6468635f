package command

import (
	"bytes"
	"testing"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/supervisor"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
)

// TestStartNamesAwaitedProcesses draws the states of a start several times, as `region up` does without a terminal: it names the awaited
// processes once for each change of their set.
func TestStartNamesAwaitedProcesses(t *testing.T) {
	process := func(name string, state supervisor.State) local.ProcessStatus {
		return local.ProcessStatus{Name: name, State: state, Background: name == "images"}
	}
	var out bytes.Buffer
	live := display.NewLive(&out)
	draw := func(phase local.Phase, processes ...local.ProcessStatus) {
		for range 3 {
			live.Draw(processLines(live, local.Status{Phase: phase, Processes: processes}))
		}
	}
	images := process("images", supervisor.Starting)
	draw(local.PhaseBuilding)
	draw(local.PhaseStarting, process("etcd", supervisor.Starting), process("postgres", supervisor.Starting), process("maestro", supervisor.Waiting), images)
	draw(local.PhaseStarting, process("etcd", supervisor.Ready), process("postgres", supervisor.Starting), process("maestro", supervisor.Waiting), images)
	draw(local.PhaseStarting, process("etcd", supervisor.Ready), process("postgres", supervisor.Ready), process("maestro", supervisor.BackingOff), images)
	draw(local.PhaseReady, process("etcd", supervisor.Ready), process("postgres", supervisor.Ready), process("maestro", supervisor.Ready), images)
	const want = `waiting for etcd, postgres; 1 more start after them
etcd: Ready
waiting for postgres; 1 more start after them
postgres: Ready
maestro: BackingOff
waiting for maestro
maestro: Ready
`
	if out.String() != want {
		t.Errorf("printed:\n%swant:\n%s", out.String(), want)
	}
}
