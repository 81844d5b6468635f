package logforwarder

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hcpmesh/hcpmesh/internal/certfile"
	"github.com/hcpmesh/hcpmesh/internal/process"
)

// Flags are the flags of the program log-forwarder.
type Flags struct {
	Kubeconfig      string
	HostedDir       string
	StateDir        string
	Location        string
	ResourceManager string
	BlobURL         string
	CAFile          string
	SettingsAge     time.Duration
	FlushInterval   time.Duration
	ReportAfter     time.Duration
}

// AddFlags registers the flags.
func (f *Flags) AddFlags(flags *flag.FlagSet) {
	flags.StringVar(&f.Kubeconfig, "kubeconfig", "", "kubeconfig `file` of the management cluster; without it, the service account of the pod")
	flags.StringVar(&f.HostedDir, "hosted-dir", "", "`folder` with a folder for each hosted control plane, which has its logs")
	flags.StringVar(&f.StateDir, "state-dir", "", "`folder` for positions and poison boxes, on a disk that survives a restart")
	flags.StringVar(&f.Location, "location", "", "Azure `region` in records")
	flags.StringVar(&f.ResourceManager, "resource-manager", "https://management.azure.com", "base `URL` of Azure Resource Manager")
	flags.StringVar(&f.BlobURL, "blob-url", "https://"+accountVariable+".blob.core.windows.net", "base `URL` of Blob Storage, with "+accountVariable+" in place of the account's name")
	flags.StringVar(&f.CAFile, "ca-file", "", "`file` with the authorities of Azure's certificates; without it, those of the system")
	flags.DurationVar(&f.SettingsAge, "settings-age", 5*time.Minute, "`age` after which the diagnostic settings of a cluster with new lines are read again; at least 1s")
	flags.DurationVar(&f.FlushInterval, "flush-interval", 10*time.Second, "`time` for which new lines are collected before they are appended; at least 100ms, because a blob has at most 50,000 blocks in its hour")
	flags.DurationVar(&f.ReportAfter, "report-after", 5*time.Minute, "`age` of the oldest undelivered line at which a failure is reported to the customer; at least 1s")
}

// Validate checks the flags. An error names the invalid one.
func (f *Flags) Validate() error {
	return cmp.Or(
		process.Required("hosted-dir", f.HostedDir),
		process.Required("state-dir", f.StateDir),
		process.Required("location", f.Location),
		process.Named("resource-manager", validURL(f.ResourceManager)),
		process.ErrorIf(strings.Count(f.BlobURL, accountVariable) != 1, "--blob-url: %q does not contain %s once", f.BlobURL, accountVariable),
		process.Named("blob-url", validURL(strings.Replace(f.BlobURL, accountVariable, "account", 1))),
		process.AtLeast("settings-age", f.SettingsAge, time.Second),
		process.AtLeast("flush-interval", f.FlushInterval, 100*time.Millisecond),
		process.AtLeast("report-after", f.ReportAfter, time.Second),
	)
}

// Main is the program log-forwarder. It reads the arguments of the process.
func Main() {
	var options Flags
	process.Main("log-forwarder", &options, options.Run)
}

func validURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return fmt.Errorf("%q is not an https URL", text)
	}
	return nil
}

// azure returns the settings of Azure, with the workload identity of the process.
func (f *Flags) azure() (Azure, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 16
	client, err := certfile.NewClient(f.CAFile, transport)
	if err != nil {
		return Azure{}, fmt.Errorf("--ca-file: %w", err)
	}
	azure := Azure{ResourceManager: f.ResourceManager, BlobURL: f.BlobURL, Transport: client}
	credential, err := azidentity.NewWorkloadIdentityCredential(&azidentity.WorkloadIdentityCredentialOptions{
		ClientOptions: policy.ClientOptions{Transport: azure.Transport}, DisableInstanceDiscovery: true})
	if err != nil {
		return Azure{}, fmt.Errorf("the workload identity of this process: %w", err)
	}
	azure.Credential = credential
	return azure, nil
}

// Run delivers logs until ctx ends.
func (f *Flags) Run(ctx context.Context, p *process.Process) error {
	azure, err := f.azure()
	if err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", f.Kubeconfig)
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	config.UserAgent = fieldManager
	config.QPS, config.Burst = 20, 40
	management, err := metadata.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("connecting to the management cluster: %w", err)
	}
	forwarder, err := New(Options{HostedDir: f.HostedDir, StateDir: f.StateDir, Location: f.Location, Azure: azure, SettingsAge: f.SettingsAge,
		FlushInterval: f.FlushInterval, Reports: annotations{management}, ReportAfter: f.ReportAfter, Metrics: p.Metrics, Log: p.Log})
	if err != nil {
		return fmt.Errorf("--state-dir: %w", err)
	}
	roster, err := newRoster(management, forwarder)
	if err != nil {
		return err
	}
	p.Ready("namespaces", func(context.Context) error {
		if !roster.synced() {
			return errors.New("the namespaces and HostedClusters of the management cluster are not listed yet")
		}
		return nil
	})
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var group sync.WaitGroup
	defer group.Wait()
	var rosterErr error
	group.Go(func() {
		defer cancel()
		rosterErr = roster.run(ctx)
	})
	err = forwarder.Run(ctx)
	cancel()
	group.Wait()
	return errors.Join(err, rosterErr)
}
