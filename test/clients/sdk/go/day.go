package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	sdk "hcpmesh.test/armredhatopenshifthcp"
)

// day is the sequence of steps of the test.
type day struct {
	task     task
	judge    *judge
	recorder *recorder

	operations *sdk.OperationsClient
	versions   *sdk.HcpOpenShiftVersionsClient
	roleSets   *sdk.HcpOperatorIdentityRoleSetsClient
	clusters   *sdk.HcpOpenShiftClustersClient
	nodePools  *sdk.NodePoolsClient
	auths      *sdk.ExternalAuthsClient
}

func newDay(task task, judge *judge) (*day, error) {
	recorder := &recorder{}
	factory, err := connect(task, recorder)
	if err != nil {
		return nil, err
	}
	return &day{
		task: task, judge: judge, recorder: recorder,
		operations: factory.NewOperationsClient(),
		versions:   factory.NewHcpOpenShiftVersionsClient(),
		roleSets:   factory.NewHcpOperatorIdentityRoleSetsClient(),
		clusters:   factory.NewHcpOpenShiftClustersClient(),
		nodePools:  factory.NewNodePoolsClient(),
		auths:      factory.NewExternalAuthsClient(),
	}, nil
}

func (d *day) live(ctx context.Context) error {
	for _, step := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"what the provider and the region offer", d.seeOffers},
		{"what is not there", d.missMissing},
		{"a fault in a cluster", d.sendFault},
		{"create a cluster, as often as told", d.createCluster},
		{"stop waiting, and go on in another process", d.createAndResume},
		{"delete a cluster while it is created", d.deleteEarly},
		{"lists of clusters", d.listClusters},
		{"update a cluster", d.updateCluster},
		{"node pools", d.manageNodePools},
		{"an external authentication", d.manageExternalAuth},
		{"credentials", d.manageCredentials},
		{"delete the other clusters", d.deleteClusters},
	} {
		began := time.Now()
		if err := step.run(ctx); err != nil {
			fmt.Printf("not ok: %s\n", step.name)
			return fmt.Errorf("%s: %w", step.name, err)
		}
		fmt.Printf("ok: %s (%v)\n", step.name, time.Since(began).Round(time.Millisecond))
	}
	return nil
}

// often is the polling interval without Retry-After. ARM always sends Retry-After.
var often = &runtime.PollUntilDoneOptions{Frequency: time.Second}

// finish waits until an operation is terminal and returns the body of its result.
func finish[T any](ctx context.Context, poller *runtime.Poller[T], err error) (T, []byte, error) {
	var none T
	if err != nil {
		return none, nil, err
	}
	var raw *http.Response
	result, err := poller.PollUntilDone(policy.WithCaptureResponse(ctx, &raw), often)
	if err != nil {
		return none, nil, err
	}
	body, err := runtime.Payload(raw)
	return result, body, err
}

// pagesOf reads and checks all pages of a list.
func pagesOf[T, V any](ctx context.Context, d *day, pager *runtime.Pager[T], content func(T) (page any, values []V)) ([]V, error) {
	var all []V
	for pager.More() {
		var raw *http.Response
		response, err := pager.NextPage(policy.WithCaptureResponse(ctx, &raw))
		if err != nil {
			return nil, err
		}
		body, err := runtime.Payload(raw)
		if err != nil {
			return nil, err
		}
		page, values := content(response)
		if err := d.judge.check(page, body); err != nil {
			return nil, err
		}
		all = append(all, values...)
	}
	return all, nil
}

// read reads one resource and returns it with its body.
func read[T any](ctx context.Context, get func(context.Context) (T, error)) (T, []byte, error) {
	var raw *http.Response
	result, err := get(policy.WithCaptureResponse(ctx, &raw))
	if err != nil {
		return result, nil, err
	}
	body, err := runtime.Payload(raw)
	return result, body, err
}

// refused checks that an error is a response of ARM with a status and a code, and returns its body.
func refused(err error, status int, code string) ([]byte, error) {
	var refusal *azcore.ResponseError
	if !errors.As(err, &refusal) {
		return nil, fmt.Errorf("want %d %s, got %w", status, code, orNothing(err))
	}
	if refusal.StatusCode != status || refusal.ErrorCode != code {
		return nil, fmt.Errorf("want %d %s, got %d %s: %w", status, code, refusal.StatusCode, refusal.ErrorCode, err)
	}
	return runtime.Payload(refusal.RawResponse)
}

func orNothing(err error) error {
	if err == nil {
		return errors.New("no error")
	}
	return err
}

// cluster returns a typed cluster from the task, with the properties of the api-version.
func (d *day) cluster(name string) (sdk.HcpOpenShiftCluster, error) {
	var cluster sdk.HcpOpenShiftCluster
	if err := json.Unmarshal(d.task.Clusters[name], &cluster); err != nil {
		return cluster, err
	}
	extend(cluster.Properties)
	return cluster, nil
}

func (d *day) beginCreate(ctx context.Context, name string) (*runtime.Poller[sdk.HcpOpenShiftClustersClientCreateOrUpdateResponse], error) {
	cluster, err := d.cluster(name)
	if err != nil {
		return nil, err
	}
	return d.clusters.BeginCreateOrUpdate(ctx, d.task.ResourceGroup, name, cluster, nil)
}

// created checks a cluster after its creation.
func (d *day) created(name string, cluster sdk.HcpOpenShiftCluster, body []byte) error {
	if err := d.judge.check(cluster, body); err != nil {
		return err
	}
	p := cluster.Properties
	switch {
	case *cluster.Name != name:
		return fmt.Errorf("the result is %s", *cluster.Name)
	case *p.ProvisioningState != sdk.ProvisioningStateSucceeded:
		return fmt.Errorf("provisioningState is %s", *p.ProvisioningState)
	case p.API == nil || p.API.URL == nil || p.Console == nil || p.DNS == nil || p.DNS.BaseDomain == nil || p.Platform.IssuerURL == nil:
		return fmt.Errorf("a created cluster has no URL: %s", body)
	case cluster.SystemData == nil || cluster.SystemData.CreatedAt == nil || time.Since(*cluster.SystemData.CreatedAt).Abs() > time.Hour:
		return fmt.Errorf("unexpected creation time: %s", body)
	}
	return observed(p)
}
