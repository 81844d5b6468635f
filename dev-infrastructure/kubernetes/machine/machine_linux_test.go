package machine

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/kubeapi/kubeapitest"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
	"github.com/hcpmesh/hcpmesh/internal/testing/transcript"
)

const (
	// timeout bounds a test.
	timeout = 2 * time.Minute
	// starterCommand makes the test binary start a machine and wait for its end.
	starterCommand = "starter"
	// outerAddress is the address of the outer machine on its bridge.
	outerAddress = "10.77.0.1"
)

// TestMain makes the test binary the program that runs machines, too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == launchCommand || os.Args[1] == initCommand) {
		exitAfter(Main(os.Args[1:]))
	}
	if len(os.Args) > 2 && os.Args[1] == starterCommand {
		exitAfter(runStarter(os.Args[2]))
	}
	os.Exit(m.Run())
}

func exitAfter(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// outerSpec is a machine with a bridge that runs a program.
func outerSpec(dir string) Spec {
	return Spec{
		Name:     "outer",
		Bridge:   &Bridge{Name: "br0", Address: outerAddress + "/24"},
		Programs: []Program{sleeper(dir)},
	}
}

// innerSpec is a machine inside outerSpec with a root file system of its own, in which dir is visible.
func innerSpec(dir, name, address string) Spec {
	return Spec{
		Name:     name,
		Link:     &Link{Bridge: "br0", Address: address + "/24", Gateway: outerAddress},
		Root:     &Root{Mounts: []Mount{{Source: dir, Target: dir}}},
		Programs: []Program{sleeper(dir)},
	}
}

// sleeper is a program that leaves a child in a session of its own.
func sleeper(dir string) Program {
	return Program{Name: "sleeper", Path: "/bin/sh", Args: []string{"-c", "setsid sleep 100001 & exec sleep 100000 # " + dir}, Log: filepath.Join(dir, "sleeper.log")}
}

func newContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	return ctx
}

// start starts a machine, or skips the test where machines are not possible.
func start(ctx context.Context, t *testing.T, spec Spec) *Machine {
	t.Helper()
	nightly.Only(t)
	if err := Check(); err != nil {
		kubeapitest.SkipUnlessCI(t, "machines cannot run here: "+err.Error())
	}
	program := must.Get(os.Executable())(t)
	return must.Get(Start(ctx, program, spec))(t)
}

// hostSettings returns the settings of the host that a machine could change.
func hostSettings(t *testing.T) map[string]string {
	t.Helper()
	settings := map[string]string{}
	for _, name := range []string{"net/ipv4/ip_forward", "vm/overcommit_memory", "kernel/panic", "vm/swappiness", "kernel/hostname", "kernel/keys/root_maxkeys"} {
		value := must.Get(os.ReadFile(filepath.Join("/proc/sys", name)))(t)
		settings[name] = string(value)
	}
	links := must.Get(net.Interfaces())(t)
	for _, link := range links {
		settings["interface "+link.Name] = link.HardwareAddr.String()
	}
	return settings
}

// leftovers returns the processes of machines whose command lines or mounts contain dir, and the cgroups of a launcher.
func leftovers(t *testing.T, dir string, launcher int) []string {
	t.Helper()
	var left []string
	processes := must.Get(filepath.Glob("/proc/[0-9]*"))(t)
	for _, process := range processes {
		if process == fmt.Sprintf("/proc/%d", os.Getpid()) {
			continue
		}
		command, _ := os.ReadFile(filepath.Join(process, "cmdline"))
		mounts, _ := os.ReadFile(filepath.Join(process, "mountinfo"))
		if strings.Contains(string(command), dir) || strings.Contains(string(mounts), dir) {
			left = append(left, process+": "+strings.ReplaceAll(string(command), "\x00", " "))
		}
	}
	all := must.Get(hierarchies())(t)
	for _, h := range all {
		groups := must.Get(filepath.Glob(filepath.Join(h.own, fmt.Sprintf("%s%d-*", groupPrefix, launcher))))(t)
		left = append(left, groups...)
	}
	return left
}

// TestMachinesAreConnectedAndSeparate checks the networks, the file systems and the settings of nested machines.
func TestMachinesAreConnectedAndSeparate(t *testing.T) {
	transcript.Outcome(t, transcript.Nodes)
	ctx, dir := newContext(t), t.TempDir()
	before := hostSettings(t)
	m := start(ctx, t, outerSpec(dir))

	listener := must.Get(m.Listen(ctx, outerAddress+":8000"))(t)
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(connection, connection.RemoteAddr().String()+"\n")
			_ = connection.Close()
		}
	}()
	probe := innerSpec(dir, "inner", "10.77.0.11")
	probe.Programs = append(probe.Programs, Program{Name: "probe", Path: "/bin/bash", Log: filepath.Join(dir, "probe.log"), Args: []string{"-c", `
		exec 3<>/dev/tcp/` + outerAddress + `/8000; read -r line <&3; echo "seen as ${line%:*}"
		echo "host name $(cat /proc/sys/kernel/hostname)"
		grep -q " /proc/sys/kernel/panic " /proc/mounts && echo "panic is $(cat /proc/sys/kernel/panic)"
		value=$(cat /proc/sys/vm/swappiness)
		(echo "$value" >/proc/sys/vm/swappiness) 2>/dev/null || echo "swappiness is protected"
		echo "forwards $(cat /proc/sys/net/ipv4/ip_forward)"
		(exec 3<>/dev/tcp/192.0.2.1/80) 2>&1 | grep -o unreachable
		[ -e /home ] || echo "no /home"
		grep -o "02:00:0a:4d:00:01" /proc/net/arp
		echo "hardware address $(cat /sys/class/net/eth0/address)"
		mkdir /sys/fs/cgroup/memory/probe && echo "own cgroups: $(ls -d /sys/fs/cgroup/memory/*/)"
		(touch /usr/probe) 2>&1 | grep -o Read-only
		echo "process $(ls -d /proc/1)"; echo done; exec sleep 100002`}})
	terminated := must.Get(m.StartMachine(ctx, probe))(t)
	want := []string{"seen as 10.77.0.11", "host name inner", "panic is 10", "swappiness is protected", "forwards 1", "unreachable", "no /home", "02:00:0a:4d:00:01", "hardware address 02:00:0a:4d:00:0b", "own cgroups: /sys/fs/cgroup/memory/probe/", "Read-only"}
	eventually.Before(ctx, t, "the probe's output", func() error {
		output, err := os.ReadFile(filepath.Join(dir, "probe.log"))
		if err == nil && !strings.Contains(string(output), "\ndone\n") {
			err = fmt.Errorf("incomplete: %s", output)
		}
		for _, line := range want {
			if err == nil && !strings.Contains(string(output), line) {
				t.Fatalf("no line %q in:\n%s", line, output)
			}
		}
		return err
	})
	must.Do(t, m.KillMachine(ctx, "inner"))
	if err := <-terminated; err == nil {
		t.Error("a killed machine reported no error")
	}
	// The port and the cgroups of the killed machine are free again.
	must.Get(m.StartMachine(ctx, innerSpec(dir, "inner", "10.77.0.11")))(t)
	must.Get(m.StartMachine(ctx, innerSpec(dir, "second", "10.77.0.12")))(t)
	if err := listener.Close(); err != nil {
		t.Error(err)
	}
	launcher := m.launcher.PID()
	if left := leftovers(t, dir, launcher); len(left) < 8 {
		t.Errorf("only these processes and cgroups of running machines were found: %v", left)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if left := leftovers(t, dir, launcher); len(left) > 0 {
		t.Errorf("left after Close:\n%s", strings.Join(left, "\n"))
	}
	after := hostSettings(t)
	for name, value := range before {
		if after[name] != value {
			t.Errorf("%s of the host was %q and is %q", name, value, after[name])
		}
	}
	if len(after) != len(before) {
		t.Errorf("interfaces of the host before %v and after %v", before, after)
	}
}

// TestMachineTerminatesWithItsProgram checks that the reason for the end of a machine is reported, and that nothing is left.
func TestMachineTerminatesWithItsProgram(t *testing.T) {
	ctx, dir := newContext(t), t.TempDir()
	m := start(ctx, t, outerSpec(dir))
	broken := innerSpec(dir, "broken", "10.77.0.11")
	broken.Programs = append(broken.Programs, Program{Name: "broken", Path: "/bin/sh", Args: []string{"-c", "exit 7"}, Log: filepath.Join(dir, "broken.log")})
	terminated, err := m.StartMachine(ctx, broken)
	if err == nil {
		err = <-terminated
	}
	if err == nil || !strings.Contains(err.Error(), "exit status 7") || !strings.Contains(err.Error(), "broken.log") {
		t.Errorf("the end of an inner machine: %v", err)
	}
	if err := m.Run(ctx, Program{Name: "broken", Path: "/bin/sh", Args: []string{"-c", "exit 8"}, Log: filepath.Join(dir, "broken.log")}); err != nil {
		t.Logf("the machine terminated before the reply: %v", err)
	}
	if err := m.Err(); err == nil || !strings.Contains(err.Error(), "exit status 8") {
		t.Errorf("the end of the outer machine: %v", err)
	}
	_ = m.Close()
	if left := leftovers(t, dir, m.launcher.PID()); len(left) > 0 {
		t.Errorf("left:\n%s", strings.Join(left, "\n"))
	}
}

// runStarter starts machines, prints the process ID of the launcher and waits until it is killed.
func runStarter(dir string) error {
	ctx := context.Background()
	program, err := os.Executable()
	if err != nil {
		return err
	}
	m, err := Start(ctx, program, outerSpec(dir))
	if err != nil {
		return err
	}
	if _, err := m.StartMachine(ctx, innerSpec(dir, "inner", "10.77.0.11")); err != nil {
		return err
	}
	fmt.Println(m.launcher.PID())
	return m.Err()
}

// TestMachineTerminatesWithItsStarter checks that nothing remains of machines whose starter is killed, and that the next start removes
// the cgroups of machines whose launcher is killed.
func TestMachineTerminatesWithItsStarter(t *testing.T) {
	nightly.Only(t)
	transcript.Outcome(t, transcript.Nodes)
	if err := Check(); err != nil {
		kubeapitest.SkipUnlessCI(t, "machines cannot run here: "+err.Error())
	}
	for _, victim := range []string{"starter", "launcher"} {
		t.Run(victim, func(t *testing.T) {
			ctx, dir := newContext(t), t.TempDir()
			program := must.Get(os.Executable())(t)
			starter := exec.CommandContext(ctx, program, starterCommand, dir)
			starter.Stderr = os.Stderr
			output := must.Get(starter.StdoutPipe())(t)
			must.Do(t, starter.Start())
			var launcher int
			must.Get(fmt.Fscan(bufio.NewReader(output), &launcher))(t)
			killed := starter.Process
			if victim == "launcher" {
				killed = must.Get(os.FindProcess(launcher))(t)
			}
			must.Do(t, killed.Kill())
			_ = starter.Wait()
			if victim == "launcher" { // its cgroups are removed by the next start
				must.Do(t, start(ctx, t, Spec{Name: "next"}).Close())
			}
			eventually.Before(ctx, t, "nothing is left", func() error {
				if left := leftovers(t, dir, launcher); len(left) > 0 {
					return fmt.Errorf("left:\n%s", strings.Join(left, "\n"))
				}
				return nil
			})
		})
	}
}
