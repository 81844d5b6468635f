// Package acceptance tests that whatever the frontend accepts can be applied to a management cluster. A body that is accepted and then refused
// below would leave its operation without progress, and the customer without the field to change.
package acceptance

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/version"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
	"github.com/hcpmesh/hcpmesh/internal/testing/schemamutation"
)

const (
	// seed is the seed of the combinations.
	seed = 31
	// nightlyBodies is the least number of accepted bodies of an api-version in `make nightly`, and nightlyUpdates of the updates among them.
	nightlyBodies, nightlyUpdates = 20_000, 4_000
	// sliceSingles and sliceBodies are the mutations of a kind that are tried alone in `make test`, and the least number of its accepted bodies with
	// one mutation or a combination, at an api-version. sliceUpdateSingles and sliceUpdates are those of updates.
	sliceSingles, sliceBodies        = 16, 20
	sliceUpdateSingles, sliceUpdates = 8, 11
	// poolsOfCluster is the most node pools of a cluster: Cluster Service renders all of them at each change.
	poolsOfCluster = 20
)

// subject is a kind of resources.
type subject struct {
	name, definition string
	// files are full bodies, which together have every property.
	files []string
	// share of the bodies of an api-version, in percent.
	share int
	// prepare returns a resource that does not exist yet.
	prepare func(w *worker) (*resource, error)
	// deliver passes the document that the frontend accepted on to Cluster Service, and applies the rendering.
	deliver func(w *worker, of *resource, apply application) error
	// settle gives the resource the state of one whose operation succeeded. discard makes room for the next one.
	settle, discard func(w *worker, of *resource) error
}

var clusters = subject{"cluster", "HcpOpenShiftCluster", []string{"cluster-full.json", "cluster.json"}, 35,
	(*worker).newCluster, (*worker).deliverCluster, (*worker).settleCluster, (*worker).discardCluster}

var subjects = []subject{
	clusters,
	{"nodePool", "NodePool", []string{"nodepool-full.json", "nodepool.json"}, 40,
		(*worker).newNodePool, (*worker).deliverNodePool, (*worker).settleNodePool, func(*worker, *resource) error { return nil }},
	{"externalAuth", "ExternalAuth", []string{"external-auth-full.json", "external-auth.json"}, 25,
		(*worker).newExternalAuth, (*worker).deliverExternalAuth, (*worker).settleExternalAuth, (*worker).discardExternalAuth},
}

// outcome is what became of a body.
type outcome int

const (
	refused outcome = iota
	applied
)

// worker sends the bodies of one subject at one api-version, one after the other.
type worker struct {
	t       *testing.T
	region  *region
	version string
	// minor is the version of the clusters.
	minor string
	// subscription is one without the names of the next cluster.
	subscription string
	parent       *parent
	// stored are the resources that are updated, by the index of the full body.
	stored map[int]*resource
}

// parent is the cluster of node pools and external authentications.
type parent struct {
	document     *database.ClusterDocument
	subscription string
	children     int
}

// resource is a resource that a worker creates and updates.
type resource struct {
	path, subscription string
	// prefix is the prefix of a cluster's domain.
	prefix string
	// parent is nil for a cluster.
	parent *parent
	// cluster, nodePool and externalAuth are the documents that the frontend accepted last.
	cluster      *database.ClusterDocument
	nodePool     *database.NodePoolDocument
	externalAuth *database.ExternalAuthDocument
	// updates is the number of accepted updates.
	updates int
	// mutated reports whether the resource was created with mutations, so that a PUT of the full body would change more than an update may.
	mutated bool
	// body is the last accepted body.
	body []byte
}

// TestAcceptedBodiesCanBeApplied sends bodies at all limits, and combinations of them, to the frontend, at each api-version and each OpenShift
// version that the region offers. Cluster Service stores and renders the accepted ones. A real API server with HyperShift's definitions must accept
// the result in a dry run, with the rights of Maestro's agent. Accepted updates of stored resources must be accepted as changes of the stored objects. What HyperShift makes of it in turn must be valid for Kubernetes.
func TestAcceptedBodiesCanBeApplied(t *testing.T) {
	r := newRegion(t)
	random := rand.New(rand.NewPCG(seed, 0))
	for _, api := range version.All() {
		t.Run(api.Name, func(t *testing.T) {
			begun, counts := time.Now(), &counts{}
			for i, s := range subjects {
				minors := r.offer.ClusterVersions
				if !nightly.Run() {
					minors = minors[(i+int(random.Uint32()))%len(minors):][:1]
				}
				for _, minor := range minors {
					r.try(t, s, api.Name, minor, counts, s.share*(nightlyBodies-nightlyUpdates)/100/len(minors)+1, s.share*nightlyUpdates/100/len(minors)+1)
				}
			}
			t.Logf("%d bodies were accepted, %d refused and %d applied, of which %d were updates, in %s",
				counts.accepted.Load(), counts.refused.Load(), counts.applied.Load(), counts.updates.Load(), time.Since(begun).Round(time.Second))
			bodies, updates := counts.applied.Load(), counts.updates.Load()
			if bodies < int64(len(subjects)*(sliceBodies+sliceUpdates)) || updates < int64(len(subjects)*sliceUpdates) || nightly.Run() && (bodies < nightlyBodies || updates < nightlyUpdates) {
				t.Error("too few bodies were applied")
			}
		})
	}
}

type counts struct{ accepted, refused, applied, updates atomic.Int64 }

// candidate is a body with the mutations that lead to it.
type candidate struct {
	// base is the index of the full body.
	base    int
	changes []schemamutation.Mutation
	// update is nil for a creation.
	update *update
}

// try tries the mutations of a subject alone, and then combinations of those that were accepted until there are enough. It then does the same with
// updates.
func (r *region) try(t *testing.T, s subject, version, minor string, counts *counts, enough, enoughUpdates int) {
	t.Helper()
	schema := must.Get(schemamutation.Resource(version, s.definition))(t)
	random := rand.New(rand.NewPCG(seed, uint64(len(minor))))
	var bases []map[string]any
	var first []candidate
	for i, file := range s.files {
		patch := `{}`
		if s.name == "cluster" {
			patch = fmt.Sprintf(`{"properties":{"version":{"id":%q}}}`, minor)
		}
		bases = append(bases, readBody(t, file, version, patch, schema))
		first = append(first, candidate{base: i})
		for _, change := range mutations(schema, bases[i]) {
			first = append(first, candidate{base: i, changes: []schemamutation.Mutation{change}})
		}
	}
	if !nightly.Run() {
		// What the document refuses has tests of its own in the frontend.
		first = slices.DeleteFunc(first, func(c candidate) bool {
			return len(c.changes) > 0 && !c.changes[0].Allowed && !isInteresting(c.changes[0])
		})
		random.Shuffle(len(first), func(i, j int) { first[i], first[j] = first[j], first[i] })
		first, enough, enoughUpdates = first[:min(sliceSingles, len(first))], sliceBodies, sliceUpdates
	}
	accepted := r.combine(t, s, version, minor, bases, counts, first, enough, nil)
	updates := first[:0:0]
	for i, changes := range accepted {
		for _, change := range changes {
			if !nightly.Run() && change.Schema != nil && change.Schema.CreateOnly {
				continue
			}
			updates = append(updates, candidate{i, []schemamutation.Mutation{change}, newUpdate(random, accepted[i])})
		}
	}
	if !nightly.Run() {
		random.Shuffle(len(updates), func(i, j int) { updates[i], updates[j] = updates[j], updates[i] })
		updates = updates[:min(sliceUpdateSingles, len(updates))]
	}
	r.combine(t, s, version, minor, bases, counts, updates, enoughUpdates, func(base int) *update { return newUpdate(random, accepted[base]) })
}

// combine tries candidates with at most one mutation, and then combinations of the accepted ones until enough bodies are accepted. It returns the accepted
// mutations by the index of their full body. next returns the update of a combination; it is nil for creations.
func (r *region) combine(t *testing.T, s subject, version, minor string, bases []map[string]any, counts *counts, first []candidate, enough int, next func(base int) *update) [][]schemamutation.Mutation {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, uint64(len(first))))
	singles := make([][]schemamutation.Mutation, len(bases))
	var mu sync.Mutex
	done := 0
	r.all(t, s, version, minor, bases, counts, first, func(c candidate) {
		mu.Lock()
		defer mu.Unlock()
		done++
		singles[c.base] = append(singles[c.base], c.changes...)
	})
	for fruitless := 0; done < enough && !t.Failed(); {
		var combined []candidate
		for range min(enough-done, 2000) {
			i := random.IntN(len(bases))
			c := candidate{base: i}
			if len(singles[i]) > 0 {
				c.changes = combination(random, singles[i], 2+random.IntN(5))
			}
			if next != nil {
				c.update = next(i)
			}
			combined = append(combined, c)
		}
		var accepted atomic.Int64
		r.all(t, s, version, minor, bases, counts, combined, func(candidate) { accepted.Add(1) })
		if accepted.Load() > 0 {
			fruitless = 0
		} else if fruitless++; fruitless == 10 {
			t.Fatalf("no combination of %s is accepted", s.name)
		}
		done += int(accepted.Load())
	}
	return singles
}

// all tries candidates in parallel, and calls accepted for each accepted one.
func (r *region) all(t *testing.T, s subject, version, minor string, bases []map[string]any, counts *counts, candidates []candidate, accepted func(candidate)) {
	t.Helper()
	var group sync.WaitGroup
	queue := make(chan candidate)
	for range 4 {
		group.Go(func() {
			w := &worker{t: t, region: r, version: version, minor: minor, stored: map[int]*resource{}}
			defer w.discardStored(s)
			for c := range queue {
				result, err := w.send(s, bases[c.base], c)
				switch {
				case err != nil:
					counts.accepted.Add(1)
					t.Errorf("%s at %s of a cluster of version %s is accepted and then refused.\nmutations: %s\nrefusal: %v", s.name, version, minor, describe(c.changes), err)
				case result == refused:
					counts.refused.Add(1)
				default:
					counts.accepted.Add(1)
					counts.applied.Add(1)
					if c.update != nil {
						counts.updates.Add(1)
					}
					accepted(c)
				}
			}
		})
	}
	for _, c := range candidates {
		queue <- c
	}
	close(queue)
	group.Wait()
}

// status returns the outcome of a response of the frontend, and an error for one that is neither an acceptance nor a refusal of the body.
func status(code int, answer string) (outcome, error) {
	switch code {
	case http.StatusCreated, http.StatusOK, http.StatusAccepted:
		return applied, nil
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge:
		return refused, nil
	}
	return refused, fmt.Errorf("the frontend answered %d: %s", code, answer)
}

// send creates the resource of a candidate, whose rendering is applied in a dry run, or updates a stored resource.
func (w *worker) send(s subject, base map[string]any, c candidate) (outcome, error) {
	if c.update != nil {
		return w.update(s, base, c)
	}
	of, err := s.prepare(w)
	if err != nil {
		return refused, err
	}
	result, err := w.create(s, of, apply(base, c.changes), dryRun)
	if of.body != nil {
		err = errors.Join(err, s.discard(w, of))
	}
	return result, err
}

// create sends the body of a new resource.
func (w *worker) create(s subject, of *resource, fields map[string]any, how application) (outcome, error) {
	return w.request(s, of, http.MethodPut, fields, how)
}

// request sends a body to the frontend. What it accepts is delivered.
func (w *worker) request(s subject, of *resource, method string, fields map[string]any, how application) (outcome, error) {
	body, err := json.Marshal(fields)
	if err != nil {
		return refused, err
	}
	// The prefix of the full body is of the cluster alone, as it must be in a region.
	body = bytes.ReplaceAll(body, []byte(`"baseDomainPrefix":"full"`), fmt.Appendf(nil, `"baseDomainPrefix":%q`, of.prefix))
	body = bytes.ReplaceAll(body, []byte(sampleSubscription), []byte(of.subscription))
	result, err := status(w.region.send(method, of.path, w.version, body))
	if result == refused || err != nil {
		return result, err
	}
	before := of.body
	of.body = body
	if err := s.deliver(w, of, how); err != nil {
		return applied, fmt.Errorf("%w\n%s: %.3000s\nafter: %.3000s", err, method, body, before)
	}
	return applied, nil
}

func (w *worker) newCluster() (*resource, error) {
	if w.subscription == "" {
		w.subscription = w.region.subscribe(w.t)
	}
	return &resource{path: clusterPath(w.subscription, "cluster"), subscription: w.subscription, prefix: fmt.Sprintf("full-%d", w.region.prefixes.Add(1))}, nil
}

func (w *worker) deliverCluster(of *resource, how application) error {
	document, err := take(w.region.accepted, w.region.accepted.clusters, of.path)
	if err != nil {
		return err
	}
	if of.cluster == nil {
		w.subscription = "" // another cluster may need the same names
		// Other bodies have a prefix that occurs again. Their clusters exist one after the other.
		w.region.lock(document.Cluster.Properties.DNS.BaseDomainPrefix)
	}
	of.cluster = document
	if _, err := w.region.client.ApplyCluster(w.t.Context(), document); err != nil {
		return err
	}
	return w.region.apply(w.t.Context(), document.UID, fleet.HostedCluster, "", how)
}

func (w *worker) settleCluster(of *resource) error {
	newest, ok := w.region.catalog.Newest(w.minor, "stable")
	if !ok {
		return fmt.Errorf("the catalogue has no release of %s", w.minor)
	}
	return settle(w, w.region.db.Clusters(), of, func(d *database.ClusterDocument) {
		d.ProvisioningState, d.ActiveOperationID, d.Status.ActiveVersions = hub.Succeeded, "", []string{newest.Version.String()}
	})
}

func (w *worker) discardCluster(of *resource) error {
	if of.cluster == nil {
		return nil
	}
	return w.region.remove(w.t.Context(), of.cluster)
}

// settle changes the document of a resource in the frontend's store.
func settle[D any](w *worker, documents *database.Collection[D], of *resource, change func(*D)) error {
	item, err := documents.Get(w.t.Context(), database.Key{SubscriptionID: of.subscription, ResourceID: of.path})
	if err != nil {
		return err
	}
	change(&item.Value)
	batch := w.region.db.NewBatch(of.subscription)
	database.Replace(batch, item)
	return batch.Commit(w.t.Context())
}

// parentCluster returns a running cluster of the worker's version.
func (w *worker) parentCluster() (*parent, error) {
	if w.parent != nil && w.parent.children < poolsOfCluster {
		return w.parent, nil
	}
	schema, err := schemamutation.Resource(w.version, "HcpOpenShiftCluster")
	if err != nil {
		return nil, err
	}
	of, err := clusters.prepare(w)
	if err != nil {
		return nil, err
	}
	body := readBody(w.t, "cluster-full.json", w.version, fmt.Sprintf(`{"properties":{"version":{"id":%q}}}`, w.minor), schema)
	if result, err := w.create(clusters, of, body, dryRun); err != nil || result == refused {
		return nil, fmt.Errorf("creating the cluster: %d, %w", result, err)
	}
	if err := clusters.settle(w, of); err != nil {
		return nil, err
	}
	w.parent = &parent{document: of.cluster, subscription: of.subscription}
	return w.parent, nil
}

// child returns a resource of a running cluster.
func (w *worker) child(path string) (*resource, error) {
	cluster, err := w.parentCluster()
	if err != nil {
		return nil, err
	}
	return &resource{path: cluster.document.Cluster.ID + path, subscription: cluster.subscription, parent: cluster}, nil
}

func (w *worker) newNodePool() (*resource, error) {
	of, err := w.child("/nodePools/pool")
	if err != nil {
		return nil, err
	}
	of.path += fmt.Sprint(of.parent.children)
	return of, nil
}

func (w *worker) deliverNodePool(of *resource, how application) error {
	document, err := take(w.region.accepted, w.region.accepted.nodePools, of.path)
	if err != nil {
		return err
	}
	if of.nodePool == nil {
		of.parent.children++
	}
	of.nodePool = document
	if _, err := w.region.client.ApplyNodePool(w.t.Context(), document); err != nil {
		return err
	}
	return w.region.apply(w.t.Context(), document.ClusterUID, fleet.NodePoolWork, document.UID, how)
}

func (w *worker) settleNodePool(of *resource) error {
	return settle(w, w.region.db.NodePools(), of, func(d *database.NodePoolDocument) {
		d.ProvisioningState, d.ActiveOperationID = hub.Succeeded, ""
	})
}

func (w *worker) newExternalAuth() (*resource, error) {
	for _, of := range w.stored {
		if of.parent == w.parent {
			w.parent = nil // it has an external authentication
		}
	}
	return w.child("/externalAuths/auth")
}

func (w *worker) deliverExternalAuth(of *resource, how application) error {
	of.parent.children++
	document, err := take(w.region.accepted, w.region.accepted.externalAuths, of.path)
	if err != nil {
		return err
	}
	stored := *document
	of.externalAuth = &stored
	// For Cluster Service it is a change of the external authentication before, of which a cluster has one.
	document.UID, document.Generation = of.parent.document.UID, int64(of.parent.children)
	if _, err := w.region.client.ApplyExternalAuth(w.t.Context(), document); err != nil {
		return err
	}
	return w.region.apply(w.t.Context(), document.ClusterUID, fleet.HostedCluster, "", how)
}

func (w *worker) settleExternalAuth(of *resource) error {
	return settle(w, w.region.db.ExternalAuths(), of, func(d *database.ExternalAuthDocument) {
		d.ProvisioningState, d.ActiveOperationID = hub.Succeeded, ""
	})
}

func (w *worker) discardExternalAuth(of *resource) error {
	if of.externalAuth == nil {
		return nil
	}
	return w.region.forgetExternalAuth(w.t.Context(), of.externalAuth, of.subscription)
}
