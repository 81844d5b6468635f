package command

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/control"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/supervisor"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
	"github.com/spf13/cobra"
)

// redrawEvery is the interval at which the state of a region is redrawn.
const redrawEvery = 200 * time.Millisecond

func (e *environment) region() *cobra.Command {
	return group("region", "Run a region on this machine",
		e.regionUp(), e.regionDown(), e.regionStatus(), e.regionEvents(), e.regionLogs(), e.regionRestart(), e.regionKill(), e.regionCA(), e.regionDemo())
}

// upOptions are the flags of `region up`.
type upOptions struct {
	on          string
	config      string
	basePort    int
	fidelity    string
	timeScale   float64
	logLevel    string
	faults      bool
	without     []string
	with        []string
	noBuild     bool
	detach      bool
	demo        bool
	detachedRun bool
}

func (e *environment) regionUp() *cobra.Command {
	var o upOptions
	c := &cobra.Command{
		Use:   "up",
		Short: "Build and start the region",
		Long: `Build missing programs, start the region and run it until it is interrupted.

With --detach the command returns when the region is ready, and the region runs in the background until 'hcpctl region down'.
The data of the region is kept; 'hcpctl region down --purge' removes it.

With --on kubernetes, the pipelines of the repository deploy the images of 'make images' to a service cluster and a management cluster of
real nodes. That needs Linux, root, 'make nodes images' and 'tooling/third-party/build.sh opentofu'. The clusters keep no data.`,
		PreRunE: func(c *cobra.Command, _ []string) error { return o.checkPlatform(c) },
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case o.detachedRun:
				return e.runRegion(c, &o, nil)
			case o.detach:
				return e.upDetached(c, &o)
			}
			return e.upForeground(c, &o)
		},
	}
	flags := c.Flags()
	flags.StringVar(&o.on, "on", onProcesses, "`platform` of the region: processes, or kubernetes for clusters of real nodes on this machine")
	flags.StringVar(&o.config, "config", "", "YAML `file` with the configuration of the region; flags override it")
	flags.IntVar(&o.basePort, "base-port", local.DefaultBasePort, "first `port` of the region; 0 chooses free ports and keeps them")
	flags.StringVar(&o.fidelity, "fidelity", string(local.FidelityProcess), "`fidelity` of hosted control planes: process or status")
	oneOf(c, "fidelity", string(local.FidelityProcess), string(local.FidelityStatus))
	flags.Float64Var(&o.timeScale, "time-scale", local.DefaultTimeScale, "`factor` on the durations of hosted control planes; 0 means no delays")
	flags.StringVar(&o.logLevel, "log-level", "info", "minimum log `level` of the services: debug, info, warn, error")
	flags.BoolVar(&o.faults, "faults", false, "allow fault injection in the emulators")
	flags.StringSliceVar(&o.without, "without", nil, "`processes` not to start, for example to run them in a debugger")
	flags.StringSliceVar(&o.with, "with", nil, "optional `parts` of the region: observability for Prometheus and Alertmanager, traces for the trace store (default traces)")
	flags.BoolVar(&o.noBuild, "no-build", false, "use the existing programs")
	flags.BoolVarP(&o.detach, "detach", "d", false, "return when the region is ready and run it in the background")
	flags.BoolVar(&o.demo, "demo", false, "create the demo cluster when the region is ready")
	flags.BoolVar(&o.detachedRun, "detached-run", false, "run as the background process of --detach")
	_ = flags.MarkHidden("detached-run")
	return c
}

// configuration returns the configuration of a region from the file and the flags.
func (e *environment) configuration(c *cobra.Command, o *upOptions) (local.Config, error) {
	var config local.Config
	if o.config != "" {
		if err := local.ReadConfig(o.config, &config); err != nil {
			return config, err
		}
	}
	if config.With == nil && config.OTLPEndpoint == "" {
		config.With = []string{local.WithTraces}
	}
	setChanged(c, map[string]func(){
		"base-port":  func() { config.BasePort = &o.basePort },
		"fidelity":   func() { config.Fidelity = local.Fidelity(o.fidelity) },
		"time-scale": func() { config.TimeScale = &o.timeScale },
		"log-level":  func() { config.LogLevel = o.logLevel },
		"faults":     func() { config.Faults = o.faults },
		"without":    func() { config.Without = o.without },
		"with":       func() { config.With = o.with },
	})
	config.Build = !o.noBuild
	dir, err := e.stateFolder()
	config.StateDir = dir
	return config, err
}

// runRegion starts the region and runs it until the context ends or a stop is requested. It calls ready once the region is
// ready.
func (e *environment) runRegion(c *cobra.Command, o *upOptions, ready func() error) error {
	if o.on == onKubernetes {
		return e.runOnKubernetes(c, ready)
	}
	config, err := e.configuration(c, o)
	if err != nil {
		return err
	}
	region, err := local.Start(c.Context(), config)
	if err != nil {
		return err
	}
	defer region.Close()
	if ready != nil {
		if err := ready(); err != nil {
			return err
		}
	}
	select {
	case <-c.Context().Done():
	case <-region.Down():
	}
	return nil
}

// upForeground runs the region and shows its state.
func (e *environment) upForeground(c *cobra.Command, o *upOptions) error {
	dir, err := e.stateFolder()
	if err != nil {
		return err
	}
	stopShowing := e.startShowing(context.WithoutCancel(c.Context()), dir, func(status local.Status) bool { return false })
	defer stopShowing()
	return e.runRegion(c, o, func() error {
		if err := e.ensureDefaults(c); err != nil {
			return err
		}
		if o.demo {
			stopShowing()
			return e.demo(c)
		}
		return nil
	})
}

// upDetached starts a background process that runs the region, and shows its state until it is ready.
func (e *environment) upDetached(c *cobra.Command, o *upOptions) error {
	if _, err := e.configuration(c, o); err != nil {
		return err
	}
	dir, err := e.stateFolder()
	if err != nil {
		return err
	}
	var running local.Status
	if control.NewClient(dir).Status(c.Context(), &running) == nil && running.Phase.Running() {
		fmt.Fprintf(e.err, "the region is already running in %s\n", dir)
		if err := e.restartRebuilt(c.Context(), dir, running); err != nil {
			return err
		}
		return e.afterUp(c, o)
	}
	if err := os.MkdirAll(local.LogDir(dir), 0o755); err != nil {
		return err
	}
	logPath := filepath.Join(local.LogDir(dir), "supervisor.log")
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o640)
	if err != nil {
		return err
	}
	defer log.Close()
	program, err := os.Executable()
	if err != nil {
		return err
	}
	child := exec.Command(program, append(os.Args[1:], "--detached-run", "--state-dir="+dir)...)
	child.Stdout, child.Stderr = log, log
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := child.Start(); err != nil {
		return fmt.Errorf("starting the region in the background: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()

	ready := make(chan struct{})
	stopShowing := e.startShowing(c.Context(), dir, func(status local.Status) bool {
		if status.Phase.Running() {
			close(ready)
			return true
		}
		return false
	})
	defer stopShowing()
	select {
	case <-ready:
		stopShowing()
		return e.afterUp(c, o)
	case <-ended:
		stopShowing()
		text, _ := os.ReadFile(logPath)
		return errors.New(strings.TrimPrefix(strings.TrimSpace(string(text)), "hcpctl: "))
	case <-c.Context().Done():
		_ = child.Process.Signal(syscall.SIGTERM)
		<-ended
		return interrupted("stopped before the region was ready")
	}
}

// restartRebuilt restarts the processes whose programs were rebuilt after they started.
func (e *environment) restartRebuilt(ctx context.Context, dir string, running local.Status) error {
	for _, p := range running.Processes {
		program, err := os.Stat(p.Program)
		if err != nil || p.Started.IsZero() || program.ModTime().Before(p.Started) {
			continue
		}
		fmt.Fprintf(e.err, "restarting %s: its program was rebuilt\n", p.Name)
		if err := control.NewClient(dir).Restart(ctx, p.Name); err != nil {
			return err
		}
	}
	return nil
}

// afterUp creates the defaults and the demo cluster in a ready region.
func (e *environment) afterUp(c *cobra.Command, o *upOptions) error {
	if err := e.ensureDefaults(c); err != nil {
		return err
	}
	endpoints, err := e.endpoints()
	if err != nil {
		return err
	}
	fmt.Fprintf(e.err, "the region is ready: ARM at %s, the SRE portal at %s\n", endpoints.ARM, endpoints.Portal)
	if o.demo {
		return e.demo(c)
	}
	return nil
}

// startShowing calls show until stop is called, which waits for its end.
func (e *environment) startShowing(ctx context.Context, dir string, done func(local.Status) bool) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		e.show(ctx, dir, done)
	}()
	return func() {
		cancel()
		<-shown
	}
}

// show draws the state of the region until ctx ends or done returns true.
func (e *environment) show(ctx context.Context, dir string, done func(local.Status) bool) {
	live := display.NewLive(e.err)
	client := control.NewClient(dir)
	building := false
	for {
		var status local.Status
		if err := client.Status(ctx, &status); err == nil {
			if status.Phase == local.PhaseBuilding && !building {
				building = true
				fmt.Fprintln(e.err, "building missing programs; the first build takes several minutes")
			}
			live.Draw(processLines(live, status))
			if done(status) {
				return
			}
		}
		if backoff.Sleep(ctx, redrawEvery) != nil {
			return
		}
	}
}

// processLines returns one line for each process. Without a terminal it leaves out transient states, and names in one line the processes that
// a start waits for.
func processLines(live *display.Live, status local.Status) []display.Line {
	var lines []display.Line
	for _, p := range status.Processes {
		text := fmt.Sprintf("%-30s %-11s", p.Name, p.State)
		if !live.Terminal() {
			if p.State == "Waiting" || p.State == "Starting" || p.State == "Stopping" {
				continue
			}
			lines = append(lines, display.Line{Key: p.Name, Text: strings.TrimSpace(fmt.Sprintf("%s: %s %s", p.Name, p.State, p.Message))})
			continue
		}
		if p.Restarts > 0 {
			text += fmt.Sprintf(" (%d restarts)", p.Restarts)
		}
		lines = append(lines, display.Line{Key: p.Name, Text: text + " " + p.Message})
	}
	if text := awaitedText(status); text != "" && !live.Terminal() {
		lines = append(lines, display.Line{Key: "awaited", Text: text})
	}
	return lines
}

// positive returns a number as text; empty for none.
func positive[N int | int32](number N) string {
	if number <= 0 {
		return ""
	}
	return fmt.Sprint(number)
}

// awaitedText returns what the start of a region waits for: the processes that run and are not ready, and how many start after them. It
// is empty if the region has started.
func awaitedText(status local.Status) string {
	var awaited []string
	later := 0
	for _, p := range status.Processes {
		switch {
		case status.Phase != local.PhaseStarting || p.Background || p.State == supervisor.Ready:
		case p.State == supervisor.Waiting:
			later++
		default:
			awaited = append(awaited, p.Name)
		}
	}
	if len(awaited) == 0 {
		return ""
	}
	text := "waiting for " + strings.Join(awaited, ", ")
	if later > 0 {
		text += fmt.Sprintf("; %d more start after them", later)
	}
	return text
}

func (e *environment) regionDown() *cobra.Command {
	var purge bool
	c := &cobra.Command{
		Use: "down", Short: "Stop the region",
		RunE: with(e.stateFolder, func(ctx context.Context, dir string, _ []string) error {
			if err := e.stopRegion(ctx, dir); err != nil {
				return err
			}
			if !purge {
				return nil
			}
			if err := local.Purge(dir); err != nil {
				return err
			}
			fmt.Fprintf(e.err, "removed %s\n", dir)
			return nil
		}),
	}
	c.Flags().BoolVar(&purge, "purge", false, "also remove the data of the region")
	return c
}

// stopRegion stops the supervisor and waits until it has ended.
func (e *environment) stopRegion(ctx context.Context, dir string) error {
	client := control.NewClient(dir)
	var status local.Status
	if err := client.Status(ctx, &status); err != nil {
		if !errors.Is(err, control.ErrNotRunning) {
			return err
		}
		fmt.Fprintln(e.err, "the region is not running")
		return nil
	}
	if err := client.Down(ctx); err != nil && !errors.Is(err, control.ErrNotRunning) {
		return err
	}
	for syscall.Kill(status.Pid, 0) == nil {
		// The supervisor has ended once its lock is free.
		if free, err := local.Free(dir); err == nil && free {
			break
		}
		if backoff.Sleep(ctx, 50*time.Millisecond) != nil {
			return interrupted("stopped waiting; the region is still stopping")
		}
	}
	fmt.Fprintln(e.err, "region stopped")
	return nil
}

func (e *environment) regionStatus() *cobra.Command {
	c := &cobra.Command{
		Use: "status", Short: "List the processes of the region",
		RunE: with(e.stateFolder, func(ctx context.Context, dir string, _ []string) error {
			var status local.Status
			if err := control.NewClient(dir).Status(ctx, &status); err != nil {
				return notRunning(err)
			}
			return e.printAs(status, func() error { return statusTable(e, status, time.Now()) })
		}),
	}
	return e.addOutputFlag(c)
}

// notRunning adds how to start the region to the error that it is not running.
func notRunning(err error) error {
	if errors.Is(err, control.ErrNotRunning) {
		return fmt.Errorf("%w; start it with `hcpctl region up --detach`", err)
	}
	return err
}

func statusTable(e *environment, status local.Status, now time.Time) error {
	fmt.Fprintf(e.out, "region %s for %s, in %s\n", status.Phase, now.Sub(status.Since).Round(time.Second), status.StateDir)
	for _, disk := range status.Disks {
		if disk.Full {
			fmt.Fprintf(e.out, "DISK FULL: %s; free space and the processes recover (docs/operators/disk-full.md)\n", disk)
		}
	}
	if certificates := status.Certificates; certificates.Error != "" {
		fmt.Fprintf(e.out, "CERTIFICATES NOT RENEWED: they end at %s: %s (docs/operators/rotation.md)\n", certificates.End.UTC().Format(time.RFC3339), certificates.Error)
	}
	for _, name := range slices.Sorted(maps.Keys(status.Certificates.Rotations)) {
		fmt.Fprintf(e.out, "the authority %s is being replaced, step %s; if no command does it, run `hcpctl region ca rotate %s`\n", name, status.Certificates.Rotations[name], name)
	}
	return display.List(e.out, status.Processes, func(p local.ProcessStatus) display.Row {
		return display.Row{{"PROCESS", p.Name}, {"STATE", string(p.State)}, {"AGE", now.Sub(p.Since).Round(time.Second).String()}, {"PID", positive(p.Pid)}, {"RESTARTS", fmt.Sprint(p.Restarts)}, {"PORTS", portsOf(p)}, {"MESSAGE", p.Message}}
	})
}

func (e *environment) regionRestart() *cobra.Command {
	return &cobra.Command{
		Use: "restart PROCESS...", Short: "Restart processes gracefully", ValidArgsFunction: e.completeProcesses(),
		RunE: with(e.stateFolder, func(ctx context.Context, dir string, args []string) error {
			for _, name := range args {
				if err := control.NewClient(dir).Restart(ctx, name); err != nil {
					return notRunning(err)
				}
				fmt.Fprintf(e.err, "%s restarted\n", name)
			}
			return nil
		}),
	}
}

func (e *environment) regionKill() *cobra.Command {
	var signal string
	c := &cobra.Command{
		Use: "kill PROCESS...", Short: "Send a signal to processes", ValidArgsFunction: e.completeProcesses(),
		RunE: with(e.stateFolder, func(ctx context.Context, dir string, args []string) error {
			for _, name := range args {
				if err := control.NewClient(dir).Kill(ctx, name, signal); err != nil {
					return notRunning(err)
				}
				fmt.Fprintf(e.err, "signal %[2]s sent to %[1]s; watch it recover with `hcpctl region status`\n", name, signal)
			}
			return nil
		}),
	}
	c.Flags().StringVar(&signal, "signal", "KILL", "`signal` name or number")
	return c
}
