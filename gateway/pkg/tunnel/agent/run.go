package agent

import (
	"cmp"
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/hcpmesh/hcpmesh/gateway/pkg/grant"
	"github.com/hcpmesh/hcpmesh/internal/certfile"
	"github.com/hcpmesh/hcpmesh/internal/intent"
	"github.com/hcpmesh/hcpmesh/internal/keyfile"
	"github.com/hcpmesh/hcpmesh/internal/process"
)

// Flags are the flags of the program gateway-tunnel.
type Flags struct {
	// Kubeconfig is the kubeconfig file of the management cluster; empty means the service account of the pod.
	Kubeconfig string
	// ManagementCluster is the name of the management cluster, which is that of its provision shard.
	ManagementCluster string
	// GatewayURL is the URL of the session gateway, and Audience that of its tokens.
	GatewayURL, Audience string
	// CAFile has the authorities of the certificates of the gateway and of the issuer of tokens; empty means those of the system.
	CAFile string
	// IntentKeysFile has the public keys of intents, with which admin signs what engineers ask for; empty means that there are no sessions with the management
	// cluster. TrustDomain is the trust domain of the region, which intents name.
	IntentKeysFile, TrustDomain string
}

// AddFlags registers the flags.
func (o *Flags) AddFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.Kubeconfig, "kubeconfig", "", "`file` with the kubeconfig of the management cluster; empty uses the service account of the pod")
	flags.StringVar(&o.ManagementCluster, "management-cluster", "", "`name` of the management cluster, which is that of its provision shard")
	flags.StringVar(&o.GatewayURL, "gateway-url", "", "`URL` of the session gateway, https://HOST[:PORT]")
	flags.StringVar(&o.Audience, "audience", "", "`audience` of tokens for the session gateway")
	flags.StringVar(&o.CAFile, "ca-file", "", "`file` with the authorities of the certificates of the gateway and of the token issuer; without it, those of the system")
	flags.StringVar(&o.IntentKeysFile, "intent-keys-file", "", "`file` with the public Tink keyset of the keys with which admin signs what engineers ask for; without it, there are no sessions with the management cluster")
	flags.StringVar(&o.TrustDomain, "trust-domain", "", "trust `domain` of the region, with --intent-keys-file")
}

// Validate returns an error that names the first missing or invalid flag.
func (o *Flags) Validate() error {
	u, err := url.Parse(o.GatewayURL)
	return cmp.Or(
		process.Required("management-cluster", o.ManagementCluster),
		process.Required("gateway-url", o.GatewayURL),
		process.Required("audience", o.Audience),
		process.ErrorIf(err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.Path != "" || u.RawQuery != "",
			"--gateway-url: %q is not an https URL without a path", o.GatewayURL),
		process.ErrorIf((o.IntentKeysFile == "") != (o.TrustDomain == ""), "--trust-domain and --intent-keys-file require each other"),
	)
}

// Main is the program gateway-tunnel. It reads the arguments of the process.
func Main() {
	var options Flags
	process.Main("gateway-tunnel", &options, func(ctx context.Context, p *process.Process) error { return Run(ctx, p, options) })
}

// Run keeps tunnels until ctx ends.
func Run(ctx context.Context, p *process.Process, options Flags) error {
	// client-go logs with klog, which has one logger per process.
	klog.SetSlogLogger(slog.New(p.Log.Handler()))
	config, err := clientcmd.BuildConfigFromFlags("", options.Kubeconfig)
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	config.UserAgent = "hcpmesh-gateway-tunnel"
	resolver, err := NewResolver(config)
	if err != nil {
		return err
	}
	gateway, err := url.Parse(options.GatewayURL)
	if err != nil {
		return fmt.Errorf("--gateway-url: %w", err)
	}
	proxy := http.ProxyFromEnvironment
	settings := func() *tls.Config { return &tls.Config{MinVersion: tls.VersionTLS12} }
	transport := http.DefaultTransport.(*http.Transport).Clone()
	client := &http.Client{Transport: transport}
	if options.CAFile != "" {
		authorities, err := certfile.LoadRoots(options.CAFile)
		if err != nil {
			return fmt.Errorf("--ca-file: %w", err)
		}
		proxy, transport.Proxy = nil, nil
		settings = func() *tls.Config { return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: authorities.Pool()} }
		transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		client.Transport = authorities.Transport(transport)
	}
	identity := &azidentity.WorkloadIdentityCredentialOptions{DisableInstanceDiscovery: true}
	identity.Transport = client
	credential, err := azidentity.NewWorkloadIdentityCredential(identity)
	if err != nil {
		return fmt.Errorf("reading the workload identity: %w", err)
	}
	token := func(ctx context.Context) (string, error) {
		token, err := credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{options.Audience + "/.default"}})
		return token.Token, err
	}
	var granter grant.Granter
	if options.IntentKeysFile != "" {
		intents, ring, err := intent.LoadVerifier(options.IntentKeysFile, options.TrustDomain)
		if err != nil {
			return fmt.Errorf("--intent-keys-file: %w", err)
		}
		p.Metrics.MustRegister(keyfile.Collector("intent-keys-file", ring))
		if granter, err = grant.NewGranter(config, grant.ManagementCluster(options.ManagementCluster), intents); err != nil {
			return err
		}
	}
	tunnels := New(Options{Gateway: gateway, ManagementCluster: options.ManagementCluster, Token: token, TLS: settings, Proxy: proxy, Resolver: resolver, Granter: granter,
		Log: p.Log, Metrics: p.Metrics})
	p.Ready("session-gateway", tunnels.Ready)
	tunnels.Run(ctx)
	return ctx.Err()
}
