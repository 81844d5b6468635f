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

// subscription is the one of a cluster's: there are several, in several groups.
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

// retry commits what add decides, and waits for the end of the operation that it begins.
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
			return fmt.Errorf("%s %s ended as %s: %+v", item.Value.Request, item.Value.ResourceID, item.Value.Status, item.Value.Error)
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

// life is what one customer has, and does next.
type life struct {
	r       *region
	cluster int
	random  *rand.Rand
	exists  bool
	pools   map[string]bool
	auth    bool
	did     []string
}

// step does one thing that can be done, and waits for its end.
func (l *life) step(ctx context.Context) error {
	name := fmt.Sprintf("np%d", 1+l.random.IntN(2))
	did := func(format string, args ...any) { l.did = append(l.did, fmt.Sprintf(format, args...)) }
	switch what := l.random.IntN(10); {
	case !l.exists:
		did("create")
		l.exists = true
		return l.r.createCluster(ctx, l.cluster)
	case what < 2:
		did("delete")
		l.exists, l.auth, l.pools = false, false, map[string]bool{}
		return l.r.deleteCluster(ctx, l.cluster)
	case what < 5:
		did("update")
		return l.r.updateCluster(ctx, l.cluster, l.random.IntN(1000))
	case what < 6 && !l.auth:
		did("auth")
		l.auth = true
		return l.r.createAuth(ctx, l.cluster)
	case !l.pools[name]:
		did("create %s", name)
		l.pools[name] = true
		return l.r.createPool(ctx, l.cluster, name)
	case what < 8:
		did("scale %s", name)
		return l.r.scalePool(ctx, l.cluster, name, int32(1+l.random.IntN(5)))
	default:
		did("delete %s", name)
		delete(l.pools, name)
		return l.r.deletePool(ctx, l.cluster, name)
	}
}

// lives are those of some customers.
func (r *region) lives(seed uint64, clusters int) []*life {
	var lives []*life
	for n := range clusters {
		lives = append(lives, &life{r: r, cluster: n, random: rand.New(rand.NewPCG(seed, uint64(n))), pools: map[string]bool{}})
	}
	return lives
}

// live has all customers do something, each up to that many times, and all of it end. At most 64 do so at once.
func live(ctx context.Context, lives []*life, most int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	errs := make(chan error, len(lives))
	places := make(chan struct{}, 64)
	var group sync.WaitGroup
	for _, l := range lives {
		group.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			for range 1 + l.random.IntN(most) {
				if err := l.step(ctx); err != nil {
					errs <- fmt.Errorf("cluster %d, after %s: %w", l.cluster, strings.Join(l.did, ", "), err)
					return
				}
			}
		})
	}
	group.Wait()
	close(errs)
	return <-errs
}
