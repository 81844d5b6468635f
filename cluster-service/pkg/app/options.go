// Package app wires Cluster Service: it reads the options of the process, connects the parts and runs them until the
// process is stopped. If PostgreSQL or Maestro is unavailable, at the start or later, it waits and /readyz reports it. Only
// invalid options end the process.
package app

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/azure"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/config"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/deletiongraph"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/pass"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/render"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/audit/writer"
	"github.com/hcpmesh/hcpmesh/internal/certfile"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/postgres"
	"github.com/hcpmesh/hcpmesh/internal/postgres/postgrescommand"
	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/internal/release"
	"github.com/hcpmesh/hcpmesh/internal/release/signature"
	"github.com/hcpmesh/hcpmesh/internal/seal"
	"github.com/hcpmesh/hcpmesh/internal/tracing"
)

// Options are the flags of the process.
type Options struct {
	Tracing tracing.Options
	Audit   writer.Options
	Mesh    mesh.Options

	Listen         string
	IntentKeysURL  string
	Database       postgres.Settings
	MaxConnections int
	Migrate        bool
	SecretsKey     string // file
	ResealAgain    time.Duration
	Maestro        string
	MaestroPlain   bool
	ShardsFile     string
	ShardKeysDir   string
	ConfigFile     string
	ReleaseCatalog string
	UpdateGraph    string
	UpdateGraphCA  string // file
	TrustRoot      string // file
	Signatures     string
	Environment    string
	Developer      bool
	Region         string
	BaseDomain     string
	IssuerBase     string
	APIURLSource   string
	SigningKeys    int
	Publishers     int
	UpgradeLimit   int
	Components     time.Duration
	Renewals       int
}

// AddFlags registers the flags.
func (o *Options) AddFlags(flags *flag.FlagSet) {
	o.Tracing.AddFlags(flags)
	o.Audit.AddFlags(flags)
	flags.StringVar(&o.Listen, "listen", "127.0.0.1:8443", "`address` of the gRPC API, which uses mutual TLS unless --sidecar-identity is set")
	o.Mesh.AddFlags(flags)
	flags.StringVar(&o.IntentKeysURL, "intent-keys-url", "", "`URL` of the keys with which admin signs what engineers ask for, for example https://admin:8444/admin/v1/intent-keys; http with --sidecar-identity")
	o.Database.AddFlags(flags)
	flags.IntVar(&o.MaxConnections, "database-connections", 16, "most connections to the database, beside one that listens")
	flags.BoolVar(&o.Migrate, "migrate", true, "migrate the database at start, which its role must own; false waits until the command `migrate` has done so")
	flags.StringVar(&o.SecretsKey, "secrets-key-file", "", "`file` with the Tink keyset that seals secrets in the database; created when missing with --developer")
	flags.StringVar(&o.Maestro, "maestro-grpc-address", "", "`address` of Maestro's gRPC service")
	flags.BoolVar(&o.MaestroPlain, "maestro-plaintext", false, "talk to Maestro without TLS, for tests; behind a sidecar, --sidecar-identity does so")
	flags.StringVar(&o.ShardsFile, "shards-file", "", "YAML `file` of the provision shards")
	flags.StringVar(&o.ShardKeysDir, "shard-keys-dir", "", "`folder` with the public Tink keyset of each shard's agent, SHARD.json, for which Secrets are sealed")
	flags.StringVar(&o.ConfigFile, "config", "", "YAML `file` of the region's configuration; empty takes the defaults")
	flags.StringVar(&o.ReleaseCatalog, "release-catalog", "", "YAML `file` of the releases, until the update graph is known; empty takes the built-in catalogue")
	flags.StringVar(&o.UpdateGraph, "update-graph-url", "", "`URL` of the update graph, up to and without /v1/graph; empty goes by the release catalogue alone")
	flags.StringVar(&o.UpdateGraphCA, "update-graph-ca-file", "", "`file` of the authorities that the update graph's certificate may be of; empty takes the system's")
	flags.StringVar(&o.TrustRoot, "release-trust-root-file", "", "`file` of the armored OpenPGP public keys that sign releases; empty takes the key of OpenShift's publisher")
	flags.StringVar(&o.Signatures, "release-signatures", signature.OpenShiftStore, "https or file `URL` of the signatures of releases, up to and without /sha256=DIGEST/signature-N")
	flags.StringVar(&o.Environment, "environment", "local", "name of the environment, part of namespaces, at most 10 characters")
	flags.BoolVar(&o.Developer, "developer", false, "for a developer's machine: run without a pull secret, create a missing keyset, and accept clusters without identities")
	flags.StringVar(&o.Region, "region", "local", "name of the Azure region")
	flags.StringVar(&o.BaseDomain, "base-domain", "", "DNS zone of the clusters; empty takes <region>.hcpmesh.test")
	flags.StringVar(&o.IssuerBase, "oidc-issuer-base", "", "https URL under which the clusters' token issuers stand; empty takes https://oidc.<base domain>")
	flags.StringVar(&o.APIURLSource, "api-url-source", "dns", "dns: API URLs name the cluster's DNS name; endpoint: the endpoint that its HostedCluster reports")
	flags.IntVar(&o.SigningKeys, "signing-keys-ahead", 16, "service account signing keys to make ahead of need")
	flags.IntVar(&o.UpgradeLimit, "max-policy-upgrades", 50, "most upgrades by policies that are under way at once in the region; 0 is no limit")
	flags.DurationVar(&o.Components, "components-after", 15*time.Second, "how long an upgrade rolls out a control plane before its components are looked at one by one; 0 is at once")
	flags.IntVar(&o.Publishers, "publishers", 8, "clusters whose works are published to Maestro at once")
	flags.IntVar(&o.Renewals, "renewals", 10, "clusters that a new rendering (of a new release, configuration or pull secret) is on its way to at once")
	flags.DurationVar(&o.ResealAgain, "reseal-again-after", pass.DefaultResealAgain, "pause after which signing keys are searched again for a former sealing key; longer than a new keyset needs to reach all replicas")
}

var environmentName = regexp.MustCompile(`^[a-z]([a-z0-9]{0,9})$`)

// Validate validates the flags.
func (o *Options) Validate() error {
	o.BaseDomain = cmp.Or(o.BaseDomain, o.Region+".hcpmesh.test")
	o.IssuerBase = cmp.Or(o.IssuerBase, "https://oidc."+o.BaseDomain)
	issuer, err := url.Parse(o.IssuerBase)
	return cmp.Or(
		process.Required("listen", o.Listen),
		process.Required("intent-keys-url", o.IntentKeysURL),
		process.Required("secrets-key-file", o.SecretsKey),
		process.Required("maestro-grpc-address", o.Maestro),
		process.Required("shards-file", o.ShardsFile),
		process.Required("shard-keys-dir", o.ShardKeysDir),
		process.Required("region", o.Region),
		process.Required("release-signatures", o.Signatures),
		o.Mesh.Validate(), o.Tracing.Validate(), o.Audit.Validate(), o.Database.Validate(),
		process.Named("intent-keys-url", o.Mesh.CheckURL(o.IntentKeysURL)),
		process.ErrorIf(!environmentName.MatchString(o.Environment), "--environment: %q is not 1 to 10 lower-case letters and digits", o.Environment),
		process.ErrorIf(err != nil || issuer.Scheme != "https" || issuer.Host == "", "--oidc-issuer-base: %q is not an https URL", o.IssuerBase),
		process.ErrorIf(o.APIURLSource != "dns" && o.APIURLSource != "endpoint", "--api-url-source: %q is neither dns nor endpoint", o.APIURLSource),
		process.ErrorIf(o.UpdateGraph != "" && !isHTTP(o.UpdateGraph), "--update-graph-url: %q is not an http or https URL", o.UpdateGraph),
		process.AtLeast("database-connections", o.MaxConnections, 2),
		process.AtLeast("publishers", o.Publishers, 1),
		process.AtLeast("max-policy-upgrades", o.UpgradeLimit, 0),
		process.AtLeast("components-after", o.Components, 0),
		process.AtLeast("renewals", o.Renewals, 1),
		process.AtLeast("reseal-again-after", o.ResealAgain, 1),
		process.AtLeast("signing-keys-ahead", o.SigningKeys, 0),
	)
}

// Main is the program cluster-service. It reads the arguments of the process.
func Main() {
	postgrescommand.Main("cluster-service", store.Migrations(), os.Args[1:])
	var options Options
	process.Main("cluster-service", &options, func(ctx context.Context, p *process.Process) error { return Run(ctx, p, &options) })
}

func isHTTP(text string) bool {
	parsed, err := url.Parse(text)
	return err == nil && (parsed.Scheme == "https" || parsed.Scheme == "http") && parsed.Host != "" && parsed.RawQuery == ""
}

// graphClient returns the HTTP client for the update graph. Requests contain no secrets; the certificate of the server is
// verified.
func (o *Options) graphClient() (*http.Client, error) {
	client, err := certfile.NewClient(o.UpdateGraphCA, http.DefaultTransport.(*http.Transport).Clone())
	if err != nil {
		return nil, fmt.Errorf("--update-graph-ca-file: %w", err)
	}
	return client, nil
}

// verifier returns the verifier of the releases' signatures.
func (o *Options) verifier() (*signature.Verifier, error) {
	root, err := signature.OpenShift()
	if o.TrustRoot != "" {
		root, err = signature.LoadTrustRoot(o.TrustRoot)
	}
	if err != nil {
		return nil, fmt.Errorf("--release-trust-root-file: %w", err)
	}
	store, err := signature.OpenStore(o.Signatures, &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()})
	if err != nil {
		return nil, fmt.Errorf("--release-signatures: %w", err)
	}
	return signature.NewVerifier(root, store, time.Now), nil
}

// inputs are the contents of the files that the options name.
type inputs struct {
	databaseURL    string
	authentication postgres.Authentication
	transport      mesh.Transport
	keeper         *seal.Keys
	shards         []config.Shard
	releases       *release.Catalog
	graphs         *http.Client
	signatures     *signature.Verifier
	renderer       *render.Renderer
	// azure is nil if clusters have no Azure resources.
	azure *azure.Steps
}

func (o *Options) read() (*inputs, error) {
	transport, err := o.Mesh.Load(mesh.ClusterService)
	if err != nil {
		return nil, err
	}
	in := &inputs{transport: transport}
	// Without a certificate, identity is nil.
	identity, _ := transport.(*mesh.Identity)
	if in.databaseURL, in.authentication, err = o.Database.Read(identity); err != nil {
		return nil, err
	}
	if in.keeper, err = o.openKeeper(); err != nil {
		return nil, err
	}
	if in.releases, err = release.Load(o.ReleaseCatalog); err != nil {
		return nil, err
	}
	if in.graphs, err = o.graphClient(); err != nil {
		return nil, err
	}
	if in.signatures, err = o.verifier(); err != nil {
		return nil, err
	}
	settings, err := o.settings()
	if err != nil {
		return nil, err
	}
	if in.shards, err = config.LoadShards(o.ShardsFile, &settings.Config.Placement); err != nil {
		return nil, err
	}
	for i, shard := range in.shards {
		if settings.ShardKeys[shard.Name] == nil {
			return nil, fmt.Errorf("%s: provisionShards[%d].name: %s has no public key: --shard-keys-dir needs the file %s.json", o.ShardsFile, i, shard.Name, shard.Name)
		}
	}
	in.renderer = &render.Renderer{
		Region: fleet.Region{BaseDomain: o.BaseDomain, IssuerBase: strings.TrimSuffix(o.IssuerBase, "/"), EndpointURLs: o.APIURLSource == "endpoint",
			StepLimits: deletiongraph.NewLimits(settings.Config.Deletion.Durations()), ComponentsAfter: o.Components},
		Environment: o.Environment, Developer: o.Developer, Config: settings.Config, PullSecret: settings.PullSecret, ShardKeys: settings.ShardKeys, Open: in.keeper.Open,
	}
	if settings.Config.AzureResources != nil {
		return in, in.connectAzure(*settings.Config.AzureResources, o.Region)
	}
	return in, nil
}

// connectAzure enables Azure resources for the clusters of an Azure region.
func (in *inputs) connectAzure(settings config.AzureResources, region string) error {
	clients, err := azure.Connect(settings)
	if err != nil {
		return err
	}
	for _, kind := range fleet.AzureKinds() {
		if kind == fleet.AzureCertificate && settings.Vault == "" || kind == fleet.AzureCredentials && settings.ManagedIdentities == nil {
			continue
		}
		in.renderer.Region.AzureKinds = append(in.renderer.Region.AzureKinds, kind)
	}
	in.azure = &azure.Steps{Clients: clients, Capacity: azure.NewCapacity(clients, time.Now), Region: in.renderer.Region, Config: settings, Location: region, Open: in.keeper.Open, Now: time.Now}
	return nil
}
