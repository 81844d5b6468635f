// Package dump collects what every layer holds of one cluster: ARM's documents and operations from Cosmos DB, the fleet's records
// from Cluster Service, and the bundles with their status from Maestro. It reads the layers concurrently. A layer that cannot be
// read is named in the dump and does not fail the others, because dumps are needed most during failures. Secrets are removed.
package dump

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/hcpmesh/hcpmesh/admin/pkg/maestro"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// layerTimeout limits the time to read the layers.
const layerTimeout = 10 * time.Second

// pageSize is the page size of requests to Cluster Service.
const pageSize = 500

// BundleReader reads bundles from Maestro.
type BundleReader interface {
	Bundles(ctx context.Context, ids []string) ([]maestro.Bundle, wire.Ignored, error)
	EachPage(ctx context.Context, take func([]adminv1.Orphan) error) (wire.Ignored, error)
}

// Collector collects dumps. It is safe for concurrent use.
type Collector struct {
	db      *database.DB
	fleet   clusterservicev1.ClusterServiceClient
	maestro BundleReader
}

// New returns a Collector.
func New(db *database.DB, fleet clusterservicev1.ClusterServiceClient, bundles BundleReader) *Collector {
	return &Collector{db: db, fleet: fleet, maestro: bundles}
}

// Collect returns the dump of a cluster with all layers.
func (t *Collector) Collect(ctx context.Context, cluster adminv1.Cluster) *adminv1.Dump {
	return t.collect(ctx, cluster, true, func(ctx context.Context, dump *adminv1.Dump, unavailable func(string, error)) {
		works, err := t.Works(ctx, cluster.UID)
		if err != nil {
			// Without the works it is not known which bundles are the cluster's.
			unavailable(adminv1.LayerClusterService, err)
			unavailable(adminv1.LayerMaestro, err)
			return
		}
		var both sync.WaitGroup
		both.Go(func() {
			layer, err := t.bundles(ctx, works)
			if err != nil {
				unavailable(adminv1.LayerMaestro, err)
				return
			}
			dump.Maestro = &adminv1.MaestroLayer{Bundles: layer.Items, Ignored: layer.Ignored}
		})
		both.Go(func() {
			layer, err := t.fleetLayer(ctx, cluster.UID)
			if err != nil {
				unavailable(adminv1.LayerClusterService, err)
				return
			}
			layer.Works = adminv1.Messages(works)
			dump.ClusterService = layer
		})
		both.Wait()
	})
}

// CollectWithoutBundles returns the dump of a cluster without the layer Maestro and without works.
func (t *Collector) CollectWithoutBundles(ctx context.Context, cluster adminv1.Cluster) *adminv1.Dump {
	return t.collect(ctx, cluster, true, func(ctx context.Context, dump *adminv1.Dump, unavailable func(string, error)) {
		layer, err := t.fleetLayer(ctx, cluster.UID)
		if err != nil {
			unavailable(adminv1.LayerClusterService, err)
			return
		}
		dump.ClusterService = layer
	})
}

// CollectARM returns the dump of a cluster with ARM's layer, and with row as the only part of Cluster Service's layer.
func (t *Collector) CollectARM(ctx context.Context, cluster adminv1.Cluster, row *clusterservicev1.Cluster) *adminv1.Dump {
	return t.collect(ctx, cluster, false, func(_ context.Context, dump *adminv1.Dump, _ func(string, error)) {
		dump.ClusterService = &adminv1.FleetLayer{Cluster: &adminv1.FleetCluster{Of: row}}
	})
}

// collect reads ARM's layer, and with journal that of monitor, and calls rest concurrently, which may set the other layers.
func (t *Collector) collect(ctx context.Context, cluster adminv1.Cluster, journal bool, rest func(ctx context.Context, dump *adminv1.Dump, unavailable func(layer string, err error))) *adminv1.Dump {
	dump := &adminv1.Dump{TakenAt: time.Now().UTC(), Cluster: cluster}
	var mu sync.Mutex
	unavailable := func(layer string, err error) {
		mu.Lock()
		defer mu.Unlock()
		if dump.Unavailable == nil {
			dump.Unavailable = map[string]string{}
		}
		dump.Unavailable[layer] = UnavailableReason(err)
	}
	ctx, cancel := context.WithTimeout(ctx, layerTimeout)
	defer cancel()
	var wg sync.WaitGroup
	if journal {
		wg.Go(func() {
			layer, err := t.Journal(ctx, cluster.UID)
			if err != nil {
				unavailable(adminv1.LayerMonitor, err)
				return
			}
			dump.Monitor = layer
		})
	}
	wg.Go(func() {
		layer, err := t.arm(ctx, cluster)
		if err != nil {
			unavailable(adminv1.LayerARM, err)
			return
		}
		dump.ARM = layer
	})
	wg.Go(func() { rest(ctx, dump, unavailable) })
	wg.Wait()
	return dump
}

// UnavailableReason returns the reason why a layer could not be read, as a sentence.
func UnavailableReason(err error) string {
	if errors.Is(err, context.DeadlineExceeded) || status.Code(err) == codes.DeadlineExceeded {
		return "It did not respond in time."
	}
	return apierror.As(err).Message
}

// Works returns the works of a cluster.
func (t *Collector) Works(ctx context.Context, uid string) ([]*clusterservicev1.Work, error) {
	response, err := t.fleet.ListWorks(ctx, &clusterservicev1.ListWorksRequest{ClusterUid: uid})
	if err != nil {
		return nil, apierror.FromGRPC(err)
	}
	return response.GetWorks(), nil
}

// Bundles returns the Maestro bundles of a cluster without secrets, in the order of its works.
func (t *Collector) Bundles(ctx context.Context, uid string) (*adminv1.BundleList, error) {
	works, err := t.Works(ctx, uid)
	if err != nil {
		return nil, err
	}
	return t.bundles(ctx, works)
}

func (t *Collector) bundles(ctx context.Context, works []*clusterservicev1.Work) (*adminv1.BundleList, error) {
	names, order := map[string]string{}, []string{}
	for _, w := range works {
		names[w.GetId()] = w.GetName()
		order = append(order, w.GetId())
	}
	found, ignored, err := t.maestro.Bundles(ctx, order)
	if err != nil {
		return nil, err
	}
	bundles := []adminv1.Bundle{}
	for _, b := range found {
		bundle := adminv1.Bundle{
			ID: b.ID, Name: names[b.ID], Consumer: b.ConsumerName, Version: b.Version, CreatedAt: b.CreatedAt, UpdatedAt: b.UpdatedAt,
			DeletedAt: b.DeletedAt, Status: b.Status,
		}
		for _, manifest := range b.Manifests {
			bundle.Manifests = append(bundle.Manifests, redactManifest(manifest))
		}
		bundles = append(bundles, bundle)
	}
	slices.SortFunc(bundles, func(a, b adminv1.Bundle) int { return slices.Index(order, a.ID) - slices.Index(order, b.ID) })
	return &adminv1.BundleList{Items: bundles, Ignored: ignored}, nil
}

// maxFleetCalls limits the concurrent calls of Cluster Service for one dump.
const maxFleetCalls = 8

// fleetLayer reads Cluster Service's layer with concurrent calls. The first error cancels the others.
func (t *Collector) fleetLayer(ctx context.Context, uid string) (*adminv1.FleetLayer, error) {
	layer := &adminv1.FleetLayer{}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxFleetCalls)
	group.Go(func() error {
		cluster, err := t.fleet.GetCluster(ctx, &clusterservicev1.GetClusterRequest{Uid: uid})
		switch err := apierror.FromGRPC(err); {
		case err == nil:
			layer.Cluster = &adminv1.FleetCluster{Of: cluster}
		case apierror.KindOf(err) != apierror.NotFound:
			return err
		}
		return nil
	})
	readAll(group, &layer.NodePools, func(token string) (*clusterservicev1.ListNodePoolsResponse, error) {
		return t.fleet.ListNodePools(ctx, &clusterservicev1.ListNodePoolsRequest{ClusterUid: uid, PageSize: pageSize, PageToken: token})
	}, (*clusterservicev1.ListNodePoolsResponse).GetNodePools)
	readAll(group, &layer.ExternalAuths, func(token string) (*clusterservicev1.ListExternalAuthsResponse, error) {
		return t.fleet.ListExternalAuths(ctx, &clusterservicev1.ListExternalAuthsRequest{ClusterUid: uid, PageSize: pageSize, PageToken: token})
	}, (*clusterservicev1.ListExternalAuthsResponse).GetExternalAuths)
	t.readCredentials(ctx, group, uid, &layer.Credentials, &layer.Revocations)
	readAll(group, &layer.Upgrades, func(token string) (*clusterservicev1.ListUpgradesResponse, error) {
		return t.fleet.ListUpgrades(ctx, &clusterservicev1.ListUpgradesRequest{ClusterUid: uid, PageSize: pageSize, PageToken: token})
	}, (*clusterservicev1.ListUpgradesResponse).GetUpgrades)
	group.Go(func() error {
		shards, err := t.fleet.ListProvisionShards(ctx, &clusterservicev1.ListProvisionShardsRequest{})
		if err != nil {
			return fmt.Errorf("listing the provision shards: %w", apierror.FromGRPC(err))
		}
		layer.ProvisionShards = adminv1.Messages(shards.GetProvisionShards())
		return nil
	})
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return layer, nil
}

// Credentials returns the credentials of a cluster, without their certificates, and the revocations.
func (t *Collector) Credentials(ctx context.Context, uid string) (credentials []adminv1.FleetCredential, revocations []adminv1.FleetRevocation, err error) {
	group, ctx := errgroup.WithContext(ctx)
	t.readCredentials(ctx, group, uid, &credentials, &revocations)
	err = group.Wait() // what is returned is read after this, whatever the order within a return
	return credentials, revocations, err
}

// readCredentials starts reading the credentials of a cluster, without their certificates, and the revocations in a group.
func (t *Collector) readCredentials(ctx context.Context, group *errgroup.Group, uid string, credentials *[]adminv1.FleetCredential, revocations *[]adminv1.FleetRevocation) {
	readAll(group, credentials, func(token string) (*clusterservicev1.ListBreakGlassCredentialsResponse, error) {
		return t.fleet.ListBreakGlassCredentials(ctx, &clusterservicev1.ListBreakGlassCredentialsRequest{ClusterUid: uid, PageSize: pageSize, PageToken: token})
	}, func(page *clusterservicev1.ListBreakGlassCredentialsResponse) []*clusterservicev1.BreakGlassCredential {
		shown := page.GetCredentials()
		for i, c := range shown {
			shown[i] = WithoutCertificate(c)
		}
		return shown
	})
	readAll(group, revocations, func(token string) (*clusterservicev1.ListBreakGlassRevocationsResponse, error) {
		return t.fleet.ListBreakGlassRevocations(ctx, &clusterservicev1.ListBreakGlassRevocationsRequest{ClusterUid: uid, PageSize: pageSize, PageToken: token})
	}, (*clusterservicev1.ListBreakGlassRevocationsResponse).GetRevocations)
}

// WithoutCertificate returns a copy of a credential without its certificate and its signing request.
func WithoutCertificate(c *clusterservicev1.BreakGlassCredential) *clusterservicev1.BreakGlassCredential {
	c = proto.CloneOf(c)
	if c.GetStatus().GetCertificate() != "" {
		c.Status.Certificate = removed
	}
	if c.GetSpec().GetCertificateSigningRequest() != "" {
		c.Spec.CertificateSigningRequest = removed
	}
	return c
}

// readAll starts reading all pages of a list in a group.
func readAll[P interface{ GetNextPageToken() string }, M proto.Message](group *errgroup.Group, all *[]adminv1.Message[M], list func(token string) (P, error), items func(P) []M) {
	group.Go(func() error {
		*all = []adminv1.Message[M]{}
		err := clusterservice.EachPage(list, func(page P) error {
			*all = append(*all, adminv1.Messages(items(page))...)
			return nil
		})
		if err != nil {
			var none M
			return fmt.Errorf("listing every %s: %w", none.ProtoReflect().Descriptor().Name(), err)
		}
		return nil
	})
}
