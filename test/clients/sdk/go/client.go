package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	sdk "hcpmesh.test/armredhatopenshifthcp"
)

// connect creates the clients of the task's subscription. The recorder records their traffic.
func connect(task task, recorder *recorder) (*sdk.ClientFactory, error) {
	authority, err := os.ReadFile(task.Authority)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("%s contains no certificate", task.Authority)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	options := azcore.ClientOptions{
		Cloud: cloud.Configuration{
			ActiveDirectoryAuthorityHost: task.ARM,
			Services: map[cloud.ServiceName]cloud.ServiceConfiguration{
				cloud.ResourceManager: {Endpoint: task.ARM, Audience: "https://management.azure.com"},
			},
		},
		Transport: &http.Client{Transport: transport},
	}
	identity, err := azidentity.NewClientSecretCredential(task.Client.TenantID, task.Client.ClientID, task.Client.ClientSecret,
		&azidentity.ClientSecretCredentialOptions{
			ClientOptions:            options,
			DisableInstanceDiscovery: true, // the discovery endpoint of Microsoft does not know a local region
		})
	if err != nil {
		return nil, err
	}
	options.PerRetryPolicies = []policy.Policy{recorder}
	return sdk.NewClientFactory(task.Subscription, identity, &arm.ClientOptions{ClientOptions: options, DisableRPRegistration: true})
}

// exchange is a request with its response.
type exchange struct {
	method, path   string
	status         int
	retryAfter     time.Duration
	sent, answered time.Time
}

func (e exchange) poll() bool {
	return e.method == http.MethodGet && strings.Contains(e.path, "/hcpOperation")
}

// recorder records the exchanges of the clients in the order of the responses.
type recorder struct {
	mu        sync.Mutex
	exchanges []exchange
	onPoll    func()
}

// Do implements policy.Policy.
func (r *recorder) Do(request *policy.Request) (*http.Response, error) {
	e := exchange{method: request.Raw().Method, path: request.Raw().URL.Path, sent: time.Now()}
	response, err := request.Next()
	if err != nil {
		return nil, err
	}
	e.answered, e.status = time.Now(), response.StatusCode
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil {
		e.retryAfter = time.Duration(seconds) * time.Second
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.exchanges = append(r.exchanges, e)
	if e.poll() && r.onPoll != nil {
		r.onPoll()
	}
	return response, nil
}

// watch clears the recorder and sets the function to call after each poll; nil removes it.
func (r *recorder) watch(onPoll func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.exchanges, r.onPoll = nil, onPoll
}

// last returns the latest exchange.
func (r *recorder) last() exchange {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.exchanges) == 0 {
		return exchange{}
	}
	return r.exchanges[len(r.exchanges)-1]
}

// heeded checks that no poll came sooner than the Retry-After of the previous response. It returns the number of polls that waited.
func (r *recorder) heeded() (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	waited := 0
	for i, next := range r.exchanges {
		if i == 0 || !next.poll() || r.exchanges[i-1].retryAfter == 0 {
			continue
		}
		before := r.exchanges[i-1]
		if pause := next.sent.Sub(before.answered); pause < before.retryAfter {
			return waited, fmt.Errorf("polled %s after %v, but Retry-After was %v", next.path, pause, before.retryAfter)
		}
		waited++
	}
	return waited, nil
}
