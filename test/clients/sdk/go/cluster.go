package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	sdk "hcpmesh.test/armredhatopenshifthcp"
)

func (d *day) sendFault(ctx context.Context) error {
	cluster, err := d.cluster("typed")
	if err != nil {
		return err
	}
	cluster.Properties.Network = &sdk.NetworkProfile{HostPrefix: to.Ptr[int32](30)}
	_, err = d.clusters.BeginCreateOrUpdate(ctx, d.task.ResourceGroup, "typed", cluster, nil)
	body, err := refused(err, http.StatusBadRequest, "InvalidRequestContent")
	if err != nil {
		return err
	}
	var answer sdk.ErrorResponse
	if err := json.Unmarshal(body, &answer); err != nil {
		return err
	}
	if answer.Error == nil || answer.Error.Target == nil || *answer.Error.Target != "properties.network.hostPrefix" {
		return fmt.Errorf("the error does not name the field: %s", body)
	}
	return d.judge.check(answer, body)
}

func (d *day) createCluster(ctx context.Context) error {
	d.recorder.watch(nil)
	poller, err := d.beginCreate(ctx, "typed")
	if err != nil {
		return err
	}
	if poller.Done() {
		return errors.New("its poller has nothing to wait for")
	}
	result, body, err := finish(ctx, poller, nil)
	if err != nil {
		return err
	}
	switch waited, err := d.recorder.heeded(); {
	case err != nil:
		return err
	case waited == 0:
		return errors.New("no answer said how long to wait")
	}
	if err := d.created("typed", result.HcpOpenShiftCluster, body); err != nil {
		return err
	}
	got, body, err := d.getCluster(ctx, "typed")
	if err != nil {
		return err
	}
	return d.created("typed", got, body)
}

func (d *day) getCluster(ctx context.Context, name string) (sdk.HcpOpenShiftCluster, []byte, error) {
	got, body, err := read(ctx, func(ctx context.Context) (sdk.HcpOpenShiftClustersClientGetResponse, error) {
		return d.clusters.Get(ctx, d.task.ResourceGroup, name, nil)
	})
	return got.HcpOpenShiftCluster, body, err
}

// createAndResume stops waiting at the first poll that finds the operation in progress, and lets another process wait.
func (d *day) createAndResume(ctx context.Context) error {
	poller, err := d.beginCreate(ctx, "resumed")
	if err != nil {
		return err
	}
	impatient, giveUp := context.WithCancel(ctx)
	defer giveUp()
	d.recorder.watch(giveUp)
	_, err = poller.PollUntilDone(impatient, often)
	d.recorder.watch(nil)
	if !errors.Is(err, context.Canceled) {
		return fmt.Errorf("waiting was not canceled: %w", orNothing(err))
	}
	if poller.Done() {
		return errors.New("a poller that was given up is done")
	}
	token, err := poller.ResumeToken()
	if err != nil {
		return err
	}
	other := d.task
	other.Poller = token
	input, err := json.Marshal(other)
	if err != nil {
		return err
	}
	process := exec.CommandContext(ctx, os.Args[0], append(slices.Clone(os.Args[1:]), "-resume")...)
	process.Stdin = bytes.NewReader(input)
	if output, err := process.CombinedOutput(); err != nil {
		return fmt.Errorf("the other process: %w: %s", err, output)
	}
	return nil
}

// finishResumed waits in the other process.
func (d *day) finishResumed(ctx context.Context) error {
	poller, err := d.clusters.BeginCreateOrUpdate(ctx, d.task.ResourceGroup, "resumed", sdk.HcpOpenShiftCluster{},
		&sdk.HcpOpenShiftClustersClientBeginCreateOrUpdateOptions{ResumeToken: d.task.Poller})
	result, body, err := finish(ctx, poller, err)
	if err != nil {
		return err
	}
	return d.created("resumed", result.HcpOpenShiftCluster, body)
}

// deleteEarly deletes a cluster during its creation. The creation is then canceled, unless it has already succeeded.
func (d *day) deleteEarly(ctx context.Context) error {
	creation, err := d.beginCreate(ctx, "short-lived")
	if err != nil {
		return err
	}
	if err := d.deleteCluster(ctx, "short-lived"); err != nil {
		return err
	}
	_, err = creation.PollUntilDone(ctx, often)
	var refusal *azcore.ResponseError
	if !errors.As(err, &refusal) || (refusal.ErrorCode != "Canceled" && refusal.ErrorCode != "ResourceNotFound") {
		return fmt.Errorf("unexpected result of the creation of a deleted cluster: %w", orNothing(err))
	}
	return nil
}

func (d *day) deleteCluster(ctx context.Context, name string) error {
	poller, err := d.clusters.BeginDelete(ctx, d.task.ResourceGroup, name, nil)
	if err != nil {
		return err
	}
	if _, err := poller.PollUntilDone(ctx, often); err != nil {
		return err
	}
	_, err = d.clusters.Get(ctx, d.task.ResourceGroup, name, nil)
	_, err = refused(err, http.StatusNotFound, "ResourceNotFound")
	return err
}

func (d *day) deleteClusters(ctx context.Context) error {
	ended := make(chan error)
	names := []string{"typed", "resumed"}
	for _, name := range names {
		go func() { ended <- d.deleteCluster(ctx, name) }()
	}
	var failed error
	for range names {
		failed = errors.Join(failed, <-ended)
	}
	return failed
}

func (d *day) listClusters(ctx context.Context) error {
	names := func(clusters []*sdk.HcpOpenShiftCluster) []string {
		var names []string
		for _, cluster := range clusters {
			names = append(names, *cluster.Name)
		}
		slices.Sort(names)
		return names
	}
	want := []string{"resumed", "typed"}
	found, err := pagesOf(ctx, d, d.clusters.NewListByResourceGroupPager(d.task.ResourceGroup, nil),
		func(r sdk.HcpOpenShiftClustersClientListByResourceGroupResponse) (any, []*sdk.HcpOpenShiftCluster) {
			return r.HcpOpenShiftClusterListResult, r.Value
		})
	if err != nil {
		return err
	}
	if !slices.Equal(names(found), want) {
		return fmt.Errorf("the resource group has %v", names(found))
	}
	found, err = pagesOf(ctx, d, d.clusters.NewListBySubscriptionPager(nil),
		func(r sdk.HcpOpenShiftClustersClientListBySubscriptionResponse) (any, []*sdk.HcpOpenShiftCluster) {
			return r.HcpOpenShiftClusterListResult, r.Value
		})
	if err != nil {
		return err
	}
	if !slices.Equal(names(found), want) {
		return fmt.Errorf("the subscription has %v", names(found))
	}
	return nil
}

func (d *day) updateCluster(ctx context.Context) error {
	patch := sdk.HcpOpenShiftClusterUpdate{
		Tags:       map[string]*string{"made-by": to.Ptr("sdk"), "mood": to.Ptr("good")},
		Properties: &sdk.HcpOpenShiftClusterPropertiesUpdate{NodeDrainTimeoutMinutes: to.Ptr[int32](45)},
	}
	poller, err := d.clusters.BeginUpdate(ctx, d.task.ResourceGroup, "typed", patch, nil)
	result, body, err := finish(ctx, poller, err)
	if err != nil {
		return err
	}
	if err := d.created("typed", result.HcpOpenShiftCluster, body); err != nil {
		return err
	}
	if len(result.Tags) != 2 || *result.Tags["mood"] != "good" || *result.Properties.NodeDrainTimeoutMinutes != 45 {
		return fmt.Errorf("unexpected result: %s", body)
	}

	// A client that changes one field writes back what it has read.
	replacement, err := d.clusters.BeginCreateOrUpdate(ctx, d.task.ResourceGroup, "typed", result.HcpOpenShiftCluster, nil)
	same, body, err := finish(ctx, replacement, err)
	if err != nil {
		return fmt.Errorf("writing back what was read: %w", err)
	}
	if err := d.created("typed", same.HcpOpenShiftCluster, body); err != nil {
		return err
	}
	if len(same.Tags) != 2 || *same.Properties.NodeDrainTimeoutMinutes != 45 {
		return fmt.Errorf("unexpected result of writing back: %s", body)
	}

	// The service merges the tags of a PATCH. Null removes one.
	poller, err = d.clusters.BeginUpdate(ctx, d.task.ResourceGroup, "typed", sdk.HcpOpenShiftClusterUpdate{Tags: map[string]*string{"mood": nil}}, nil)
	result, body, err = finish(ctx, poller, err)
	if err != nil {
		return fmt.Errorf("removing a tag: %w", err)
	}
	if len(result.Tags) != 1 || *result.Tags["made-by"] != "sdk" {
		return fmt.Errorf("unexpected result of removing a tag: %s", body)
	}
	return nil
}

func (d *day) manageCredentials(ctx context.Context) error {
	poller, err := d.requestCredential(ctx)
	result, body, err := finish(ctx, poller, err)
	if err != nil {
		return err
	}
	if err := d.judge.check(result.HcpOpenShiftClusterAdminCredential, body); err != nil {
		return fmt.Errorf("decoding the credential: %w", err)
	}
	if result.Kubeconfig == nil || *result.Kubeconfig == "" || result.ExpirationTimestamp == nil || result.ExpirationTimestamp.Before(time.Now()) {
		return errors.New("the credential lacks its kubeconfig, or has ended")
	}
	revocation, err := d.clusters.BeginRevokeCredentials(ctx, d.task.ResourceGroup, "typed", nil)
	if err != nil {
		return err
	}
	_, err = revocation.PollUntilDone(ctx, often)
	return err
}

// credentialPoller polls a credential request.
type credentialPoller = *runtime.Poller[sdk.HcpOpenShiftClustersClientRequestAdminCredentialResponse]
