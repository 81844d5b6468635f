package local

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/control"
)

// Config is the configuration of a region. Its YAML form is strict: an unknown field is an error that names the field.
type Config struct {
	// Location is the Azure location of the region, as in `westus3`.
	Location string `json:"location,omitempty"`
	// TrustDomain is the trust domain of the region's SPIFFE identities.
	TrustDomain string `json:"trustDomain,omitempty"`
	// ManagementClusters is the number of management clusters. They are named mgmt-1, mgmt-2, …
	ManagementClusters int `json:"managementClusters,omitempty"`
	// Fidelity of hosted control planes: process (a real API server each) or status (none, for scale).
	Fidelity Fidelity `json:"fidelity,omitempty"`
	// TimeScale is a factor on the observed durations of hosted control planes: 1 replays them, 0 is as fast as
	// possible.
	TimeScale *float64 `json:"timeScale,omitempty"`
	// BasePort is the first of the region's loopback ports; 0 picks free ones once and keeps them. Unset means the
	// previous ones, or DefaultBasePort.
	BasePort *int `json:"basePort,omitempty"`
	// LogLevel of our services: debug, info, warn or error.
	LogLevel string `json:"logLevel,omitempty"`
	// OTLPEndpoint is the URL of an OpenTelemetry collector (OTLP over HTTP) for the spans of the services. If it is empty, spans go to
	// the trace store of the region if it has one, and tracing is off otherwise.
	OTLPEndpoint string `json:"otlpEndpoint,omitempty"`
	// Profiling makes our programs serve profiles on Unix sockets in the folder profiling. The API servers of the management clusters serve them to
	// their administrators, and etcd to all clients with a certificate, so a profiling region must contain no secrets of value.
	Profiling bool `json:"profiling,omitempty"`
	// ReleaseCatalog is a YAML file of the region's OpenShift releases, which all programs that need them read; empty
	// uses the built-in catalogue.
	ReleaseCatalog string `json:"releaseCatalog,omitempty"`
	// CertificateLifetime is the lifetime of the certificates of our programs, of their clients and of PostgreSQL, as in `24h`. They are
	// renewed while the processes run.
	CertificateLifetime string `json:"certificateLifetime,omitempty"`
	// ShardKeys lists further provision shards for whose agents the region creates keys, so that an engineer can register them.
	ShardKeys []string `json:"shardKeys,omitempty"`
	// Faults lets tests inject faults into the emulators.
	Faults bool `json:"faults,omitempty"`
	// Throwaway trades durability in a crash of the machine (not of a process), and memory, for speed. It is for tests.
	Throwaway bool `json:"throwaway,omitempty"`
	// Without lists processes that the region does not start, because a developer runs them. Other processes do not
	// wait for them.
	Without []string `json:"without,omitempty"`

	// With lists optional parts of the region: observability for Prometheus and Alertmanager, traces for the trace store.
	With []string `json:"with,omitempty"`

	// StateDir is the folder of all data of the region. It is not part of the file.
	StateDir string `json:"-"`
	// SourceDir is the checkout from which programs are built. If empty, it is found from the working directory.
	SourceDir string `json:"-"`
	// Build makes Start build missing and outdated programs. Otherwise they must exist in SourceDir's .build folder.
	Build bool `json:"-"`
	// Programs has the folder of another build of our program, such as the previous release's, for each process that starts with it. The
	// others run the programs of SourceDir. Flags that another build does not have are left out.
	Programs map[string]string `json:"-"`
	// OnChange is called for every change of a process, OnNote with messages about the progress of the start. Both may
	// be nil and must not block.
	OnChange func(ProcessStatus) `json:"-"`
	OnNote   func(string)        `json:"-"`

	// certificateLifetime is the parsed CertificateLifetime.
	certificateLifetime time.Duration
}

// Fidelity states how real hosted control planes are.
type Fidelity string

// The fidelities.
const (
	FidelityProcess Fidelity = "process"
	FidelityStatus  Fidelity = "status"
)

// Defaults of a Config.
const (
	DefaultLocation    = "westus3"
	DefaultTrustDomain = "local"
	DefaultBasePort    = 18400
	// DefaultTimeScale makes a creation take a few seconds.
	DefaultTimeScale = 0.005
	// defaultManagementClusters lets clusters be placed on different ones.
	defaultManagementClusters = 2
	// maxManagementClusters follows from the layout of the ports.
	maxManagementClusters = 8
)

// ReadConfig reads a configuration file into config. Fields that the file does not have keep their values.
func ReadConfig(path string, config *Config) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading the region's configuration: %w", err)
	}
	if err := yaml.UnmarshalStrict(data, config); err != nil {
		return fmt.Errorf("%s: %s", path, strings.TrimPrefix(strings.TrimPrefix(err.Error(), "error unmarshaling JSON: "), "while decoding JSON: "))
	}
	return nil
}

var trustDomain = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`)

// complete sets the defaults and resolves the folders.
func (c *Config) complete() error {
	if c.Location == "" {
		c.Location = DefaultLocation
	}
	if c.TrustDomain == "" {
		c.TrustDomain = DefaultTrustDomain
	}
	if c.ManagementClusters == 0 {
		c.ManagementClusters = defaultManagementClusters
	}
	if c.Fidelity == "" {
		c.Fidelity = FidelityProcess
	}
	if c.TimeScale == nil {
		scale := DefaultTimeScale
		c.TimeScale = &scale
	}
	if c.LogLevel == "" {
		c.LogLevel = "info"
	}
	if c.CertificateLifetime == "" {
		c.CertificateLifetime = DefaultCertificateLifetime.String()
	}
	// validate refuses a malformed one.
	c.certificateLifetime, _ = time.ParseDuration(c.CertificateLifetime)
	if c.ReleaseCatalog != "" {
		path, err := filepath.Abs(c.ReleaseCatalog)
		if err != nil {
			return fmt.Errorf("releaseCatalog: %w", err)
		}
		c.ReleaseCatalog = path
	}
	if c.OnChange == nil {
		c.OnChange = func(ProcessStatus) {}
	}
	if c.OnNote == nil {
		c.OnNote = func(string) {}
	}
	if c.SourceDir == "" {
		dir, err := FindSource()
		if err != nil {
			return err
		}
		c.SourceDir = dir
	}
	if c.StateDir == "" {
		c.StateDir = filepath.Join(c.SourceDir, ".region")
	}
	var err error
	if c.StateDir, err = filepath.Abs(c.StateDir); err != nil {
		return err
	}
	c.SourceDir, err = filepath.Abs(c.SourceDir)
	return err
}

func (c *Config) validate() error {
	switch {
	case !trustDomain.MatchString(c.TrustDomain):
		return fmt.Errorf("trustDomain: %q is not a lower-case DNS name", c.TrustDomain)
	case c.ManagementClusters < 1 || c.ManagementClusters > maxManagementClusters:
		return fmt.Errorf("managementClusters: %d is not between 1 and %d", c.ManagementClusters, maxManagementClusters)
	case c.Fidelity != FidelityProcess && c.Fidelity != FidelityStatus:
		return fmt.Errorf("fidelity: %q is not supported; supported values are %s and %s", c.Fidelity, FidelityProcess, FidelityStatus)
	case *c.TimeScale < 0:
		return fmt.Errorf("timeScale: %v is negative", *c.TimeScale)
	case c.certificateLifetime < minCertificateLifetime:
		return fmt.Errorf("certificateLifetime: %q is not a duration of at least %s", c.CertificateLifetime, minCertificateLifetime)
	case !slices.Contains([]string{"debug", "info", "warn", "error"}, c.LogLevel):
		return fmt.Errorf("logLevel: %q is not one of debug, info, warn, error", c.LogLevel)
	case c.BasePort != nil && (*c.BasePort < 0 || *c.BasePort > 65535-portsPerRegion || (*c.BasePort > 0 && *c.BasePort < 1024)):
		return fmt.Errorf("basePort: %d is neither 0 nor between 1024 and %d", *c.BasePort, 65535-portsPerRegion)
	}
	if c.Profiling {
		for _, name := range c.ProcessNames() {
			if socket := ProfilingSocket(c.StateDir, name); len(socket) > control.MaxSocketPath {
				return fmt.Errorf("profiling: the path %s of a socket is longer than %d bytes; choose a shorter --state-dir", socket, control.MaxSocketPath)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Programs)) {
		if known := c.ProcessNames(); !slices.Contains(known, name) {
			return fmt.Errorf("programs: unknown process %q; the processes are %s", name, strings.Join(known, ", "))
		}
	}
	for _, part := range c.With {
		if part != WithObservability && part != WithTraces {
			return fmt.Errorf("with: unknown part %q; the parts are %s and %s", part, WithObservability, WithTraces)
		}
	}
	if c.OTLPEndpoint != "" && c.with(WithTraces) {
		return fmt.Errorf("otlpEndpoint: a region with %s sends its spans to its own trace store; set one of both", WithTraces)
	}
	for _, name := range c.Without {
		if known := c.ProcessNames(); !slices.Contains(known, name) {
			return fmt.Errorf("without: unknown process %q; the processes are %s", name, strings.Join(known, ", "))
		}
	}
	return nil
}

// managementClusters returns the names of the management clusters, also before the defaults are set.
func (c *Config) managementClusters() []string {
	names := make([]string, cmp.Or(c.ManagementClusters, defaultManagementClusters))
	for i := range names {
		names[i] = fmt.Sprintf("mgmt-%d", i+1)
	}
	return names
}

// ProcessNames returns the names of all processes that a region can have.
func (c *Config) ProcessNames() []string {
	var names []string
	for _, p := range c.processes(c.managementClusters()) {
		names = append(names, p.name)
	}
	return names
}

// StoresOnly returns the configuration of a region that runs PostgreSQL and etcd alone, to copy or restore their data.
func (c Config) StoresOnly() Config {
	c.With = nil
	c.Without = slices.DeleteFunc(c.ProcessNames(), func(name string) bool { return name == "postgres" || name == "etcd" })
	c.Programs = nil
	return c
}

// FindSource returns the checkout that contains the working directory or the running program.
func FindSource() (string, error) {
	var starts []string
	if dir, err := os.Getwd(); err == nil {
		starts = append(starts, dir)
	}
	if program, err := os.Executable(); err == nil {
		starts = append(starts, filepath.Dir(program))
	}
	for _, dir := range starts {
		for {
			if _, err := os.Stat(filepath.Join(dir, "tooling", "third-party", "build.sh")); err == nil {
				return dir, nil
			}
			parent := filepath.Dir(dir)
			if parent == dir {
				break
			}
			dir = parent
		}
	}
	return "", errors.New("finding the checkout of hcpmesh: neither the working directory nor the program is in one; change to a checkout")
}
