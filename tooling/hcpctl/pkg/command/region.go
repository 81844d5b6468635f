package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/control"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
	"github.com/spf13/cobra"
)

// redrawEvery is how often the state of a region is shown anew.
const redrawEvery = 200 * time.Millisecond

func (e *environment) region() *cobra.Command {
	return group("region", "Run a whole region on this machine",
		e.regionUp(), e.regionDown(), e.regionStatus(), e.regionLogs(), e.regionRestart(), e.regionKill(), e.regionDemo())
}

// upOptions are the flags of `region up`.
type upOptions struct {
	config      string
	basePort    int
	fidelity    string
	timeScale   float64
	logLevel    string
	faults      bool
	without     []string
	noBuild     bool
	detach      bool
	demo        bool
	detachedRun bool
}

func (e *environment) regionUp() *cobra.Command {
	var o upOptions
	c := &cobra.Command{
		Use:   "up",
		Short: "Start the region, building what is missing, and keep it running",
		Long: `Start the region, building what is missing, and keep it running until it is interrupted.

With --detach the command returns when the region is ready, and the region goes on in the background until
'hcpctl region down'. What the region keeps survives; 'hcpctl region down --purge' removes it.`,
		Args: cobra.NoArgs,
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
	flags.StringVar(&o.config, "config", "", "YAML `file` with the region's configuration; the flags below go before it")
	flags.IntVar(&o.basePort, "base-port", local.DefaultBasePort, "first `port` of the region's; 0 picks free ones and keeps them")
	flags.StringVar(&o.fidelity, "fidelity", string(local.FidelityProcess), "`how` real hosted control planes are: process or status")
	flags.Float64Var(&o.timeScale, "time-scale", local.DefaultTimeScale, "`factor` on the durations of real hosted control planes; 0 is as fast as it goes")
	flags.StringVar(&o.logLevel, "log-level", "info", "least severe `level` that our services log: debug, info, warn, error")
	flags.BoolVar(&o.faults, "faults", false, "let tests inject faults into the emulators")
	flags.StringSliceVar(&o.without, "without", nil, "`processes` not to start, because you run them by hand")
	flags.BoolVar(&o.noBuild, "no-build", false, "use the programs that are there")
	flags.BoolVarP(&o.detach, "detach", "d", false, "return when the region is ready, and leave it running")
	flags.BoolVar(&o.demo, "demo", false, "create the demo cluster when the region is ready")
	flags.BoolVar(&o.detachedRun, "detached-run", false, "be the process that --detach leaves running")
	_ = flags.MarkHidden("detached-run")
	return c
}

// configuration of a region: the file, and the flags that were given.
func (e *environment) configuration(c *cobra.Command, o *upOptions) (local.Config, error) {
	var config local.Config
	if o.config != "" {
		if err := local.ReadConfig(o.config, &config); err != nil {
			return config, err
		}
	}
	given := c.Flags().Changed
	if given("base-port") {
		config.BasePort = &o.basePort
	}
	if given("fidelity") {
		config.Fidelity = local.Fidelity(o.fidelity)
	}
	if given("time-scale") {
		config.TimeScale = &o.timeScale
	}
	if given("log-level") {
		config.LogLevel = o.logLevel
	}
	if given("faults") {
		config.Faults = o.faults
	}
	if given("without") {
		config.Without = o.without
	}
	config.Build = !o.noBuild
	dir, err := e.stateFolder()
	config.StateDir = dir
	return config, err
}

// runRegion starts the region and keeps it until the context ends or somebody asks for its end. ready is called once it
// is ready.
func (e *environment) runRegion(c *cobra.Command, o *upOptions, ready func() error) error {
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

// upForeground runs the region and shows it.
func (e *environment) upForeground(c *cobra.Command, o *upOptions) error {
	dir, err := e.stateFolder()
	if err != nil {
		return err
	}
	showing, stopShowing := context.WithCancel(context.WithoutCancel(c.Context()))
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		e.show(showing, dir, func(status local.Status) bool { return false })
	}()
	defer func() {
		stopShowing()
		<-shown
	}()
	return e.runRegion(c, o, func() error {
		if err := e.ensureDefaults(c); err != nil {
			return err
		}
		if o.demo {
			stopShowing()
			<-shown
			return e.demo(c)
		}
		return nil
	})
}

// upDetached starts another process that runs the region, and shows it until it is ready.
func (e *environment) upDetached(c *cobra.Command, o *upOptions) error {
	if _, err := e.configuration(c, o); err != nil {
		return err
	}
	dir, err := e.stateFolder()
	if err != nil {
		return err
	}
	var running local.Status
	if control.NewClient(dir).Status(c.Context(), &running) == nil && running.Phase == local.PhaseReady {
		fmt.Fprintf(e.err, "the region is up already, in %s\n", dir)
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

	ctx, cancel := context.WithCancel(c.Context())
	defer cancel()
	ready := make(chan struct{})
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		e.show(ctx, dir, func(status local.Status) bool {
			if status.Phase == local.PhaseReady {
				close(ready)
				return true
			}
			return false
		})
	}()
	select {
	case <-ready:
		<-shown
		return e.afterUp(c, o)
	case <-ended:
		cancel()
		<-shown
		text, _ := os.ReadFile(logPath)
		return errors.New(strings.TrimPrefix(strings.TrimSpace(string(text)), "hcpctl: "))
	case <-c.Context().Done():
		_ = child.Process.Signal(syscall.SIGTERM)
		<-ended
		<-shown
		return &interrupted{"stopped before the region was ready"}
	}
}

// restartRebuilt restarts the processes whose programs were built again since they began.
func (e *environment) restartRebuilt(ctx context.Context, dir string, running local.Status) error {
	for _, p := range running.Processes {
		program, err := os.Stat(p.Program)
		if err != nil || p.Started.IsZero() || program.ModTime().Before(p.Started) {
			continue
		}
		fmt.Fprintf(e.err, "restarting %s, whose program was built again\n", p.Name)
		if err := control.NewClient(dir).Restart(ctx, p.Name); err != nil {
			return err
		}
	}
	return nil
}

// afterUp makes a ready region useful.
func (e *environment) afterUp(c *cobra.Command, o *upOptions) error {
	if err := e.ensureDefaults(c); err != nil {
		return err
	}
	if o.demo {
		return e.demo(c)
	}
	endpoints, err := e.endpoints()
	if err != nil {
		return err
	}
	fmt.Fprintf(e.err, "the region is ready: ARM at %s\n", endpoints.ARM)
	return nil
}

// show draws the region's state until ctx ends or done says so.
func (e *environment) show(ctx context.Context, dir string, done func(local.Status) bool) {
	live := display.NewLive(e.err)
	client := control.NewClient(dir)
	building := false
	for {
		var status local.Status
		if err := client.Status(ctx, &status); err == nil {
			if status.Phase == local.PhaseBuilding && !building {
				building = true
				fmt.Fprintln(e.err, "building what is missing; the very first time takes minutes")
			}
			live.Draw(processLines(live, status))
			if done(status) {
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(redrawEvery):
		}
	}
}

// processLines are one line per process; without a terminal only what matters of it.
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
	return lines
}

func (e *environment) regionDown() *cobra.Command {
	var purge bool
	c := &cobra.Command{
		Use: "down", Short: "Stop the region", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			dir, err := e.stateFolder()
			if err != nil {
				return err
			}
			if err := e.stopRegion(c.Context(), dir); err != nil {
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
		},
	}
	c.Flags().BoolVar(&purge, "purge", false, "remove everything the region kept, too")
	return c
}

// stopRegion asks the supervisor to end and waits until it has.
func (e *environment) stopRegion(ctx context.Context, dir string) error {
	client := control.NewClient(dir)
	var status local.Status
	if err := client.Status(ctx, &status); err != nil {
		if !errors.Is(err, control.ErrNotRunning) {
			return err
		}
		fmt.Fprintln(e.err, "the region does not run")
		return nil
	}
	if err := client.Down(ctx); err != nil && !errors.Is(err, control.ErrNotRunning) {
		return err
	}
	for syscall.Kill(status.Pid, 0) == nil {
		// The supervisor has let go of everything when it answers no more and its lock is free.
		if free, err := local.Free(dir); err == nil && free {
			break
		}
		select {
		case <-ctx.Done():
			return &interrupted{"stopped waiting; the region is still stopping"}
		case <-time.After(50 * time.Millisecond):
		}
	}
	fmt.Fprintln(e.err, "the region is stopped")
	return nil
}

func (e *environment) regionStatus() *cobra.Command {
	c := &cobra.Command{
		Use: "status", Short: "Show the region's processes", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			dir, err := e.stateFolder()
			if err != nil {
				return err
			}
			var status local.Status
			if err := control.NewClient(dir).Status(c.Context(), &status); err != nil {
				return notRunning(err)
			}
			return e.printAs(status, func() error { return statusTable(e, status, time.Now()) })
		},
	}
	e.addOutputFlag(c)
	return c
}

// notRunning says what to do when it is that the region does not run.
func notRunning(err error) error {
	if errors.Is(err, control.ErrNotRunning) {
		return fmt.Errorf("%w; start it with `hcpctl region up --detach`", err)
	}
	return err
}

func statusTable(e *environment, status local.Status, now time.Time) error {
	fmt.Fprintf(e.out, "region %s since %s, in %s\n", status.Phase, now.Sub(status.Since).Round(time.Second), status.StateDir)
	var rows [][]string
	for _, p := range status.Processes {
		pid := ""
		if p.Pid > 0 {
			pid = fmt.Sprint(p.Pid)
		}
		rows = append(rows, []string{p.Name, string(p.State), now.Sub(p.Since).Round(time.Second).String(), pid, fmt.Sprint(p.Restarts), portsOf(p), p.Message})
	}
	return display.Table(e.out, []string{"PROCESS", "STATE", "SINCE", "PID", "RESTARTS", "PORTS", "MESSAGE"}, rows)
}

func (e *environment) regionRestart() *cobra.Command {
	return &cobra.Command{
		Use: "restart PROCESS...", Short: "Stop processes in good order and start them again", Args: cobra.MinimumNArgs(1), ValidArgsFunction: e.completeProcesses,
		RunE: func(c *cobra.Command, args []string) error {
			dir, err := e.stateFolder()
			if err != nil {
				return err
			}
			for _, name := range args {
				if err := control.NewClient(dir).Restart(c.Context(), name); err != nil {
					return notRunning(err)
				}
				fmt.Fprintf(e.err, "%s is ready again\n", name)
			}
			return nil
		},
	}
}

func (e *environment) regionKill() *cobra.Command {
	var signal string
	c := &cobra.Command{
		Use: "kill PROCESS...", Short: "Send processes a signal, to see the region recover", Args: cobra.MinimumNArgs(1), ValidArgsFunction: e.completeProcesses,
		RunE: func(c *cobra.Command, args []string) error {
			dir, err := e.stateFolder()
			if err != nil {
				return err
			}
			for _, name := range args {
				if err := control.NewClient(dir).Kill(c.Context(), name, signal); err != nil {
					return notRunning(err)
				}
				fmt.Fprintf(e.err, "%s got the signal %s; see it recover with `hcpctl region status`\n", name, signal)
			}
			return nil
		},
	}
	c.Flags().StringVar(&signal, "signal", "KILL", "`signal` by name or number")
	return c
}

func (e *environment) completeProcesses(c *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	dir, err := e.stateFolder()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
	defer cancel()
	var status local.Status
	if err := control.NewClient(dir).Status(ctx, &status); err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, p := range status.Processes {
		if strings.HasPrefix(p.Name, prefix) {
			names = append(names, p.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
