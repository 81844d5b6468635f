// Package app holds the flags and the wiring of the process admin.
package app

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/admin/pkg/alerts"
	"github.com/hcpmesh/hcpmesh/admin/pkg/server"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/audit/writer"
	"github.com/hcpmesh/hcpmesh/internal/authn"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/keyfile"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/internal/recording"
	"github.com/hcpmesh/hcpmesh/internal/seal"
)

// Options holds the flags of admin.
type Options struct {
	Database       database.Options
	Authentication authn.Options
	Audit          writer.Options
	// Listen is the address of the API, host:port. Callers authenticate with tokens and not with certificates.
	Listen string
	// Mesh selects how the process and other programs authenticate to each other.
	Mesh mesh.Options
	// ClusterServiceAddress is host:port of Cluster Service. MaestroURL is the URL of Maestro's REST API.
	ClusterServiceAddress string
	MaestroURL            string
	// RolesFile maps groups to roles.
	RolesFile string
	// AccessPolicyFile states what elevations need.
	AccessPolicyFile string
	// TicketValidatorURL is asked whether tickets are valid, with the token in TicketValidatorTokenFile. TicketValidatorCAFile has the
	// authorities of its certificate; empty means those of the system.
	TicketValidatorURL, TicketValidatorTokenFile, TicketValidatorCAFile string
	// ComponentsFile lists the components of the region that admin observes; may be empty.
	ComponentsFile string
	// PrometheusURL is the URL of Prometheus or of an Azure Monitor workspace, which has the alerts; may be empty.
	// PrometheusScope is the scope of the tokens that it requires; empty if it requires none.
	PrometheusURL, PrometheusScope string
	// AlertmanagerURL is the URL of Alertmanager, which has the silences; may be empty.
	AlertmanagerURL string
	// IntentKeyFile holds the Tink keyset that signs what engineers ask for.
	IntentKeyFile string
	// GatewayURL is the address of the session gateway, and GatewayKeyFile holds the public keyset that seals the private keys of its
	// sessions; both are empty if the region has no gateway.
	GatewayURL, GatewayKeyFile string
	// ServiceClusterSessions is true if the region has a service cluster, for which access sessions can be requested.
	ServiceClusterSessions bool
	// Recordings is the storage of the recordings of its commands, and RecordingKeyFile holds the private keyset that opens them. Both are empty if
	// admin does not read recordings.
	Recordings       recording.StorageOptions
	RecordingKeyFile string
	// AuditKeysDir has the public audit keys of all services, with which admin verifies audit chains, and recordings of the session gateway.
	AuditKeysDir string
	// Environment is the environment of Cluster Service, part of the names of namespaces.
	Environment string
	// Portal configures the SRE portal.
	Portal PortalOptions
}

// auditKeys returns a function that reads the public audit keys of all services.
func (o *Options) auditKeys() (func() (audit.Keys, error), error) {
	load := func() (audit.Keys, error) { return audit.LoadKeys(o.AuditKeysDir) }
	if _, err := load(); err != nil {
		return nil, fmt.Errorf("--audit-keys-dir: %w", err)
	}
	return load, nil
}

// recordings returns the recordings that admin reads; nil if the options have none.
func (o *Options) recordings(metrics prometheus.Registerer) (*server.Recordings, error) {
	if !o.Recordings.Enabled() {
		return nil, nil
	}
	keys, err := seal.LoadPrivate(o.RecordingKeyFile)
	if err != nil {
		return nil, fmt.Errorf("--recording-private-key-file: %w", err)
	}
	metrics.MustRegister(keyfile.Collector("recording-private-key-file", keys.Ring))
	signers, err := audit.FollowKeys(string(mesh.GatewayAccess), filepath.Join(o.AuditKeysDir, string(mesh.GatewayAccess)+".pem"))
	if err != nil {
		return nil, fmt.Errorf("--audit-keys-dir: %w", err)
	}
	storage, err := o.Recordings.Open()
	if err != nil {
		return nil, err
	}
	return &server.Recordings{Storage: storage, Keys: keys, Signers: signers}, nil
}

// AddFlags registers the options with flags.
func (o *Options) AddFlags(flags *flag.FlagSet) {
	o.Database.AddFlags(flags)
	o.Authentication.AddFlags(flags)
	o.Audit.AddFlags(flags)
	flags.StringVar(&o.Listen, "listen", "127.0.0.1:8444", "`address` of the API, which uses TLS unless --sidecar-identity is set")
	o.Mesh.AddFlags(flags)
	flags.StringVar(&o.ClusterServiceAddress, "cluster-service-address", "", "`host:port` of Cluster Service")
	flags.StringVar(&o.MaestroURL, "maestro-url", "", "`URL` of Maestro's REST API, for example https://maestro:8000; http with --sidecar-identity")
	flags.StringVar(&o.RolesFile, "roles-file", "", "YAML `file` that maps groups to roles")
	flags.StringVar(&o.AccessPolicyFile, "access-policy-file", "", "YAML `file` that states for each class of actions whether an elevation needs a ticket and an approval, and how long it lasts")
	flags.StringVar(&o.TicketValidatorURL, "ticket-validator-url", "", "`URL` that validates tickets; required if the access policy has tickets validated")
	flags.StringVar(&o.TicketValidatorTokenFile, "ticket-validator-token-file", "", "`file` with the bearer token for --ticket-validator-url; it may be replaced at any time")
	flags.StringVar(&o.TicketValidatorCAFile, "ticket-validator-ca-file", "", "`file` with the certificate authorities of --ticket-validator-url (default: those of the system)")
	flags.StringVar(&o.IntentKeyFile, "intent-key-file", "", "`file` with the Tink keyset (JWT_ES256) that signs what engineers ask for; all replicas share it")
	flags.StringVar(&o.ComponentsFile, "components-file", "", "YAML `file` that lists the components of the region and how to ask whether they are ready; without it explanations name only Cosmos DB, Cluster Service, Maestro and silent agents")
	flags.StringVar(&o.PrometheusURL, "prometheus-url", "", "`URL` of Prometheus or of an Azure Monitor workspace that evaluates the alerts of the region; without it alerts are not listed, and timelines have none")
	flags.StringVar(&o.PrometheusScope, "prometheus-scope", "", "`scope` of the tokens of the workload identity for --prometheus-url, for example https://prometheus.monitor.azure.com/.default (default: no tokens)")
	flags.StringVar(&o.AlertmanagerURL, "alertmanager-url", "", "`URL` of the Alertmanager that sends the alerts of the region; without it alerts cannot be silenced")
	o.Portal.AddFlags(flags)
	flags.StringVar(&o.GatewayURL, "gateway-url", "", "`URL` under which engineers reach the session gateway; without it no access sessions can be requested")
	flags.BoolVar(&o.ServiceClusterSessions, "service-cluster-sessions", false, "permit requests of access sessions for the service cluster, in which gateway-grants must run")
	flags.StringVar(&o.GatewayKeyFile, "gateway-key-file", "", "`file` with the public Tink keyset that seals the private keys of access sessions for the session gateway")
	o.Recordings.AddFlags(flags)
	flags.StringVar(&o.RecordingKeyFile, "recording-private-key-file", "", "`file` with the private Tink keyset that opens recordings; it may be replaced at any time")
	flags.StringVar(&o.AuditKeysDir, "audit-keys-dir", "", "`folder` with the public audit keys of each service, SERVICE.pem, with which admin verifies audit chains and recordings; they may be replaced at any time")
	flags.StringVar(&o.Environment, "environment", "local", "`name` of the environment, as configured in Cluster Service")
}

// Validate returns an error for the first missing or invalid flag.
func (o *Options) Validate() error {
	var alertsErr, silencesErr, recordingsErr error
	if o.PrometheusURL != "" {
		alertsErr = alerts.Check(o.PrometheusURL, o.PrometheusScope)
	}
	if o.AlertmanagerURL != "" {
		silencesErr = alerts.Check(o.AlertmanagerURL, "")
	}
	if o.Recordings.Enabled() {
		recordingsErr = o.Recordings.Validate()
	}
	gateway, err := url.Parse(o.GatewayURL)
	return cmp.Or(
		process.Required("listen", o.Listen),
		process.Required("cluster-service-address", o.ClusterServiceAddress),
		process.Required("maestro-url", o.MaestroURL),
		process.Required("roles-file", o.RolesFile),
		process.Required("access-policy-file", o.AccessPolicyFile),
		process.Required("intent-key-file", o.IntentKeyFile),
		process.Required("audit-keys-dir", o.AuditKeysDir),
		process.Required("environment", o.Environment),
		o.Mesh.Validate(), process.Named("maestro-url", o.Mesh.CheckURL(o.MaestroURL)),
		process.ErrorIf((o.TicketValidatorURL == "") != (o.TicketValidatorTokenFile == ""), "--ticket-validator-url and --ticket-validator-token-file require each other"),
		process.ErrorIf(o.ServiceClusterSessions && o.GatewayURL == "", "--service-cluster-sessions: --gateway-url is required with it"),
		process.ErrorIf((o.GatewayURL == "") != (o.GatewayKeyFile == ""), "--gateway-url and --gateway-key-file require each other"),
		process.ErrorIf(o.GatewayURL != "" && (err != nil || gateway.Scheme != "https" || gateway.Host == "" || strings.Trim(gateway.Path, "/") != "" || gateway.RawQuery != ""),
			"--gateway-url: must be an https URL without a path"),
		process.ErrorIf(o.Recordings.Enabled() != (o.RecordingKeyFile != ""),
			"--recording-private-key-file and one of --recording-sink-dir and --recording-sink-url require each other"),
		process.ErrorIf(o.PrometheusURL == "" && o.PrometheusScope != "", "--prometheus-scope requires --prometheus-url"),
		process.Named("prometheus-url", alertsErr), process.Named("alertmanager-url", silencesErr),
		process.ErrorIf(o.Authentication.Mode == "off", "--authentication: authentication cannot be disabled: actions are audited"),
		recordingsErr, o.Authentication.Validate(), o.Portal.validate(o.Authentication), o.Audit.Validate(), o.Database.Validate(),
	)
}

// Main is the program admin. It reads the arguments of the process.
func Main() {
	var options Options
	process.Main("admin", &options, func(ctx context.Context, p *process.Process) error { return Run(ctx, p, options) })
}
