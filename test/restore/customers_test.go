package restore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

const tenant = "64dc69e4-d083-49fc-9569-ebece1dd1408"

// subscription returns the subscription of a cluster. There are several, in different groups.
func subscription(cluster int) string {
	return fmt.Sprintf("11111111-0000-4000-8000-%012d", cluster%5)
}

func clusterKey(cluster int) database.Key {
	key, err := database.ResourceKey(fmt.Sprintf("/subscriptions/%s/resourceGroups/RG/providers/%s/Cluster%d", subscription(cluster), hub.ClusterResourceType, cluster))
	if err != nil {
		panic(err)
	}
	return key
}

func poolKey(cluster database.Key, name string) database.Key {
	return database.Key{SubscriptionID: cluster.SubscriptionID, ResourceID: cluster.ResourceID + "/nodePools/" + name}
}

func authKey(cluster database.Key) database.Key {
	return database.Key{SubscriptionID: cluster.SubscriptionID, ResourceID: cluster.ResourceID + "/externalAuths/entra"}
}

func newOperation(request database.OperationRequest, key database.Key, kind, uid string, generation int64) (database.Key, database.OperationDocument) {
	id, now := uuid.NewString(), time.Now().UTC()
	return database.OperationKey(key.SubscriptionID, "westus3", id), database.OperationDocument{
		OperationID: id, Request: request, ResourceID: key.ResourceID, UID: uid, Generation: generation,
		Location: "westus3", ResourceType: kind, Status: hub.Accepted, StartTime: now, LastTransitionTime: now,
	}
}

// retry commits the batch that begin fills and waits until its operation is terminal.
func (r *region) retry(ctx context.Context, begin func(ctx context.Context, batch func(sub string) *database.Batch) (operation database.Key, err error)) error {
	var operation database.Key
	err := database.Retry(ctx, func(ctx context.Context) error {
		var batch *database.Batch
		var err error
		operation, err = begin(ctx, func(sub string) *database.Batch { batch = r.db.NewBatch(sub); return batch })
		if err != nil {
			return err
		}
		return batch.Commit(ctx)
	})
	if err != nil {
		return err
	}
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		item, err := r.db.Operations().Get(ctx, operation)
		switch {
		case err != nil:
			return err
		case item.Value.Status == hub.Succeeded:
			return nil
		case item.Value.Status.Terminal():
			return fmt.Errorf("%s %s: terminal state %s: %+v", item.Value.Request, item.Value.ResourceID, item.Value.Status, item.Value.Error)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s %s is %s: %w", item.Value.Request, item.Value.ResourceID, item.Value.Status, ctx.Err())
		case <-ticker.C:
		}
	}
}

func (r *region) createCluster(ctx context.Context, cluster int) error {
	return r.retry(ctx, func(_ context.Context, batch func(string) *database.Batch) (database.Key, error) {
		key, uid := clusterKey(cluster), uuid.NewString()
		network := "/subscriptions/" + key.SubscriptionID + "/resourceGroups/RG/providers/Microsoft.Network/"
		document := database.ClusterDocument{UID: uid, Generation: 1, TenantID: tenant, ProvisioningState: hub.Accepted,
			Cluster: hub.Cluster{Resource: hub.Resource{ID: key.ResourceID, Name: fmt.Sprintf("Cluster%d", cluster), Location: "westus3"}}}
		p := &document.Cluster.Properties
		p.Version = hub.Version{ID: "4.21", ChannelGroup: "stable"}
		p.Network = hub.Network{NetworkType: "OVNKubernetes", PodCIDR: "10.128.0.0/14", ServiceCIDR: "172.30.0.0/16", MachineCIDR: "10.0.0.0/16", HostPrefix: 23}
		p.API.Visibility = hub.Public
		p.Platform = hub.Platform{ManagedResourceGroup: "managed-" + uid, OutboundType: "LoadBalancer",
			SubnetID: network + "virtualNetworks/vnet/subnets/s" + uid, NetworkSecurityGroupID: network + "networkSecurityGroups/n" + uid}
		operation, op := newOperation(database.CreateRequest, key, hub.ClusterResourceType, uid, 1)
		document.ActiveOperationID = op.OperationID
		b := batch(key.SubscriptionID)
		database.Create(b, r.db.Clusters(), key, document)
		database.Create(b, r.db.Operations(), operation, op)
		return operation, nil
	})
}

func (r *region) createPool(ctx context.Context, cluster int, name string) error {
	return r.retry(ctx, func(ctx context.Context, batch func(string) *database.Batch) (database.Key, error) {
		parent, err := r.db.Clusters().Get(ctx, clusterKey(cluster))
		if err != nil {
			return database.Key{}, err
		}
		key, uid := poolKey(parent.Key, name), uuid.NewString()
		operation, op := newOperation(database.CreateRequest, key, hub.NodePoolResourceType, uid, 1)
		document := database.NodePoolDocument{UID: uid, ClusterUID: parent.Value.UID, Generation: 1, ProvisioningState: hub.Accepted, ActiveOperationID: op.OperationID,
			NodePool: hub.NodePool{Resource: hub.Resource{ID: key.ResourceID, Name: name, Location: "westus3"}, Properties: hub.NodePoolProperties{Replicas: 2, AutoRepair: true}}}
		document.NodePool.Properties.Platform.VMSize = "Standard_D8s_v3"
		document.NodePool.Properties.Platform.OSDisk.SizeGiB, document.NodePool.Properties.Platform.OSDisk.DiskStorageAccountType = 64, "Premium_LRS"
		b := batch(key.SubscriptionID)
		database.Create(b, r.db.NodePools(), key, document)
		database.Create(b, r.db.Operations(), operation, op)
		database.Replace(b, parent)
		return operation, nil
	})
}

func (r *region) createAuth(ctx context.Context, cluster int) error {
	return r.retry(ctx, func(ctx context.Context, batch func(string) *database.Batch) (database.Key, error) {
		parent, err := r.db.Clusters().Get(ctx, clusterKey(cluster))
		if err != nil {
			return database.Key{}, err
		}
		key, uid := authKey(parent.Key), uuid.NewString()
		operation, op := newOperation(database.CreateRequest, key, hub.ExternalAuthResourceType, uid, 1)
		document := database.ExternalAuthDocument{UID: uid, ClusterUID: parent.Value.UID, Generation: 1, ProvisioningState: hub.Accepted, ActiveOperationID: op.OperationID,
			ExternalAuth: hub.ExternalAuth{Resource: hub.Resource{ID: key.ResourceID, Name: "entra"}}}
		p := &document.ExternalAuth.Properties
		p.Issuer = hub.TokenIssuer{URL: "https://login.example.com/" + tenant + "/v2.0", Audiences: []string{"audience"}}
		p.Claim.Mappings.Username.Claim = "email"
		b := batch(key.SubscriptionID)
		database.Create(b, r.db.ExternalAuths(), key, document)
		database.Create(b, r.db.Operations(), operation, op)
		database.Replace(b, parent)
		return operation, nil
	})
}

func (r *region) updateCluster(ctx context.Context, cluster int, random int) error {
	return r.retry(ctx, func(ctx context.Context, batch func(string) *database.Batch) (database.Key, error) {
		item, err := r.db.Clusters().Get(ctx, clusterKey(cluster))
		if err != nil {
			return database.Key{}, err
		}
		d := &item.Value
		d.Generation++
		d.Cluster.Properties.API.AuthorizedCIDRs = []string{fmt.Sprintf("192.0.2.%d/32", random%256)}
		operation, op := newOperation(database.UpdateRequest, item.Key, hub.ClusterResourceType, d.UID, d.Generation)
		d.ProvisioningState, d.ActiveOperationID = hub.Updating, op.OperationID
		b := batch(item.Key.SubscriptionID)
		database.Replace(b, item)
		database.Create(b, r.db.Operations(), operation, op)
		return operation, nil
	})
}

func (r *region) scalePool(ctx context.Context, cluster int, name string, replicas int32) error {
	return r.retry(ctx, func(ctx context.Context, batch func(string) *database.Batch) (database.Key, error) {
		item, err := r.db.NodePools().Get(ctx, poolKey(clusterKey(cluster), name))
		if err != nil {
			return database.Key{}, err
		}
		d := &item.Value
		d.Generation++
		d.NodePool.Properties.Replicas = replicas
		operation, op := newOperation(database.UpdateRequest, item.Key, hub.NodePoolResourceType, d.UID, d.Generation)
		d.ProvisioningState, d.ActiveOperationID = hub.Updating, op.OperationID
		b := batch(item.Key.SubscriptionID)
		database.Replace(b, item)
		database.Create(b, r.db.Operations(), operation, op)
		return operation, nil
	})
}

func (r *region) deleteCluster(ctx context.Context, cluster int) error {
	return r.retry(ctx, func(ctx context.Context, batch func(string) *database.Batch) (database.Key, error) {
		item, err := r.db.Clusters().Get(ctx, clusterKey(cluster))
		if err != nil {
			return database.Key{}, err
		}
		operation, op := newOperation(database.DeleteRequest, item.Key, hub.ClusterResourceType, item.Value.UID, item.Value.Generation)
		item.Value.ProvisioningState, item.Value.ActiveOperationID = hub.Deleting, op.OperationID
		b := batch(item.Key.SubscriptionID)
		database.Replace(b, item)
		database.Create(b, r.db.Operations(), operation, op)
		return operation, nil
	})
}

func (r *region) deletePool(ctx context.Context, cluster int, name string) error {
	return r.retry(ctx, func(ctx context.Context, batch func(string) *database.Batch) (database.Key, error) {
		item, err := r.db.NodePools().Get(ctx, poolKey(clusterKey(cluster), name))
		if err != nil {
			return database.Key{}, err
		}
		operation, op := newOperation(database.DeleteRequest, item.Key, hub.NodePoolResourceType, item.Value.UID, item.Value.Generation)
		item.Value.ProvisioningState, item.Value.ActiveOperationID = hub.Deleting, op.OperationID
		b := batch(item.Key.SubscriptionID)
		database.Replace(b, item)
		database.Create(b, r.db.Operations(), operation, op)
		return operation, nil
	})
}

// history is the random history of one customer: the resources that exist and the steps so far.
type history struct {
	r       *region
	cluster int
	random  *rand.Rand
	exists  bool
	pools   map[string]bool
	auth    bool
	steps   []string
}

// step performs one random operation and waits until it is terminal.
func (h *history) step(ctx context.Context) error {
	name := fmt.Sprintf("np%d", 1+h.random.IntN(2))
	record := func(format string, args ...any) { h.steps = append(h.steps, fmt.Sprintf(format, args...)) }
	switch what := h.random.IntN(10); {
	case !h.exists:
		record("create")
		h.exists = true
		return h.r.createCluster(ctx, h.cluster)
	case what < 2:
		record("delete")
		h.exists, h.auth, h.pools = false, false, map[string]bool{}
		return h.r.deleteCluster(ctx, h.cluster)
	case what < 5:
		record("update")
		return h.r.updateCluster(ctx, h.cluster, h.random.IntN(1000))
	case what < 6 && !h.auth:
		record("auth")
		h.auth = true
		return h.r.createAuth(ctx, h.cluster)
	case !h.pools[name]:
		record("create %s", name)
		h.pools[name] = true
		return h.r.createPool(ctx, h.cluster, name)
	case what < 8:
		record("scale %s", name)
		return h.r.scalePool(ctx, h.cluster, name, int32(1+h.random.IntN(5)))
	default:
		record("delete %s", name)
		delete(h.pools, name)
		return h.r.deletePool(ctx, h.cluster, name)
	}
}

// histories returns the histories of a number of customers with one cluster each.
func (r *region) histories(seed uint64, clusters int) []*history {
	var histories []*history
	for n := range clusters {
		histories = append(histories, &history{r: r, cluster: n, random: rand.New(rand.NewPCG(seed, uint64(n))), pools: map[string]bool{}})
	}
	return histories
}

// advance performs 1 to maxSteps steps of each history, at most 64 histories at once, and returns the first error.
func advance(ctx context.Context, histories []*history, maxSteps int) error {
	errs := make(chan error, len(histories))
	slots := make(chan struct{}, 64)
	var group sync.WaitGroup
	for _, h := range histories {
		group.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			for range 1 + h.random.IntN(maxSteps) {
				if err := h.step(ctx); err != nil {
					errs <- fmt.Errorf("cluster %d, after %s: %w", h.cluster, strings.Join(h.steps, ", "), err)
					return
				}
			}
		})
	}
	group.Wait()
	close(errs)
	return <-errs
}
