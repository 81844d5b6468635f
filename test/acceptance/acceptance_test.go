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
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/versions"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
	"github.com/hcpmesh/hcpmesh/internal/testing/schemamutation"
)

const (
	// seed is the seed of the combinations.
	seed = 31
	// nightlyBodies is the least number of accepted bodies of an api-version in `make nightly`.
	nightlyBodies = 20_000
	// sliceSingles and sliceBodies are the mutations of a kind that are tried alone in `make test`, and its accepted combinations, at an api-version.
	sliceSingles, sliceBodies = 25, 10
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
	send  func(w *worker, body []byte) (outcome, error)
}

var subjects = []subject{
	{"cluster", "HcpOpenShiftCluster", []string{"cluster-full.json", "cluster.json"}, 35, (*worker).cluster},
	{"nodePool", "NodePool", []string{"nodepool-full.json", "nodepool.json"}, 40, (*worker).nodePool},
	{"externalAuth", "ExternalAuth", []string{"external-auth-full.json", "external-auth.json"}, 25, (*worker).externalAuth},
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
}

// parent is the cluster of node pools and external authentications.
type parent struct {
	document     *database.ClusterDocument
	subscription string
	children     int
}

// TestAcceptedBodiesCanBeApplied sends bodies at all limits, and combinations of them, to the frontend, at each api-version and each OpenShift
// version that the region offers. Cluster Service stores and renders the accepted ones. A real API server with HyperShift's definitions must accept
// the result in a dry run, with the rights of Maestro's agent. What HyperShift makes of it in turn must be valid for Kubernetes.
func TestAcceptedBodiesCanBeApplied(t *testing.T) {
	r := newRegion(t)
	random := rand.New(rand.NewPCG(seed, 0))
	for _, api := range versions.APIs() {
		t.Run(api.Name, func(t *testing.T) {
			begun, counts := time.Now(), &counts{}
			for i, s := range subjects {
				minors := r.offer.ClusterVersions
				if !nightly.Run() {
					minors = minors[(i+int(random.Uint32()))%len(minors):][:1]
				}
				for _, minor := range minors {
					r.try(t, s, api.Name, minor, counts, nightlyBodies*s.share/100/len(minors)+1)
				}
			}
			t.Logf("%d bodies were accepted, %d refused and %d applied in %s", counts.accepted.Load(), counts.refused.Load(), counts.applied.Load(), time.Since(begun).Round(time.Second))
			if least := int64(len(subjects) * sliceBodies); counts.applied.Load() < least || nightly.Run() && counts.applied.Load() < nightlyBodies {
				t.Error("too few bodies were applied")
			}
		})
	}
}

type counts struct{ accepted, refused, applied atomic.Int64 }

// candidate is a body with the mutations that lead to it.
type candidate struct {
	// base is the index of the full body.
	base    int
	changes []schemamutation.Mutation
}

// try tries the mutations of a subject alone, and then combinations of those that were accepted until there are enough.
func (r *region) try(t *testing.T, s subject, version, minor string, counts *counts, enough int) {
	t.Helper()
	schema, err := schemamutation.Resource(version, s.definition)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(seed, uint64(len(minor))))
	var bases []map[string]any
	var singles [][]schemamutation.Mutation
	var first []candidate
	for i, file := range s.files {
		patch := `{}`
		if s.name == "cluster" {
			patch = fmt.Sprintf(`{"properties":{"version":{"id":%q}}}`, minor)
		}
		bases = append(bases, readBody(t, file, version, patch, schema))
		singles = append(singles, nil)
		first = append(first, candidate{base: i})
		for _, change := range mutations(schema, bases[i]) {
			first = append(first, candidate{i, []schemamutation.Mutation{change}})
		}
	}
	if !nightly.Run() {
		// What the document refuses has tests of its own in the frontend.
		first = slices.DeleteFunc(first, func(c candidate) bool {
			return len(c.changes) > 0 && !c.changes[0].Allowed && !isInteresting(c.changes[0])
		})
		random.Shuffle(len(first), func(i, j int) { first[i], first[j] = first[j], first[i] })
		first, enough = first[:min(sliceSingles, len(first))], sliceBodies
	}
	var mu sync.Mutex
	r.all(t, s, version, minor, bases, counts, first, func(c candidate) {
		mu.Lock()
		defer mu.Unlock()
		singles[c.base] = append(singles[c.base], c.changes...)
	})
	for done := 0; done < enough && !t.Failed(); {
		var next []candidate
		for range min(enough-done, 2000) {
			i := random.IntN(len(bases))
			if len(singles[i]) == 0 {
				continue
			}
			next = append(next, candidate{i, combination(random, singles[i], 2+random.IntN(5))})
		}
		var accepted atomic.Int64
		r.all(t, s, version, minor, bases, counts, next, func(candidate) { accepted.Add(1) })
		if accepted.Load() == 0 {
			t.Fatalf("no combination of %s is accepted", s.name)
		}
		done += int(accepted.Load())
	}
}

// all tries candidates in parallel, and calls accepted for each accepted one.
func (r *region) all(t *testing.T, s subject, version, minor string, bases []map[string]any, counts *counts, candidates []candidate, accepted func(candidate)) {
	t.Helper()
	var group sync.WaitGroup
	queue := make(chan candidate)
	for range 4 {
		group.Go(func() {
			w := &worker{t: t, region: r, version: version, minor: minor}
			for c := range queue {
				body := apply(bases[c.base], c.changes)
				text, err := json.Marshal(body)
				if err != nil {
					t.Error(err)
					continue
				}
				result, err := s.send(w, text)
				switch {
				case err != nil:
					counts.accepted.Add(1)
					t.Errorf("%s at %s of a cluster of version %s is accepted and then refused.\nmutations: %s\nrefusal: %v\nbody: %.3000s", s.name, version, minor, describe(c.changes), err, text)
				case result == refused:
					counts.refused.Add(1)
				default:
					counts.accepted.Add(1)
					counts.applied.Add(1)
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

// of returns a body for a subscription.
func of(subscription string, body []byte) []byte {
	return []byte(strings.ReplaceAll(string(body), sampleSubscription, subscription))
}

// status returns the outcome of a response of the frontend, and an error for one that is neither an acceptance nor a refusal of the body.
func status(code int, answer string) (outcome, error) {
	switch code {
	case http.StatusCreated:
		return applied, nil
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge:
		return refused, nil
	}
	return refused, fmt.Errorf("the frontend answered %d: %s", code, answer)
}

func (w *worker) cluster(body []byte) (outcome, error) {
	if w.subscription == "" {
		w.subscription = w.region.subscribe(w.t)
	}
	document, result, err := w.createCluster(w.subscription, body)
	if result == applied {
		w.subscription = "" // another cluster may need the same names
	}
	if document != nil {
		err = errors.Join(err, w.region.remove(w.t.Context(), document))
	}
	return result, err
}

func (w *worker) createCluster(subscription string, body []byte) (*database.ClusterDocument, outcome, error) {
	path := clusterPath(subscription, "cluster")
	// The prefix of the full body is of the cluster alone, as it must be in a region.
	body = bytes.ReplaceAll(of(subscription, body), []byte(`"baseDomainPrefix":"full"`), fmt.Appendf(nil, `"baseDomainPrefix":"full-%d"`, w.region.prefixes.Add(1)))
	result, err := status(w.region.put(path, w.version, body))
	if result == refused || err != nil {
		return nil, result, err
	}
	document, err := take(w.region.accepted, w.region.accepted.clusters, path)
	if err != nil {
		return nil, applied, err
	}
	// Other bodies have a prefix that occurs again. Their clusters exist one after the other.
	w.region.lock(document.Cluster.Properties.DNS.BaseDomainPrefix)
	if _, err := w.region.client.ApplyCluster(w.t.Context(), document); err != nil {
		return document, applied, err
	}
	return document, applied, w.region.apply(w.t.Context(), document.UID, fleet.HostedCluster, "")
}

// parentCluster returns a running cluster of the worker's version.
func (w *worker) parentCluster() (*parent, error) {
	if w.parent != nil && w.parent.children < poolsOfCluster {
		return w.parent, nil
	}
	subscription := w.region.subscribe(w.t)
	schema, err := schemamutation.Resource(w.version, "HcpOpenShiftCluster")
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(readBody(w.t, "cluster-full.json", w.version, fmt.Sprintf(`{"properties":{"version":{"id":%q}}}`, w.minor), schema))
	if err != nil {
		return nil, err
	}
	document, result, err := w.createCluster(subscription, body)
	if err != nil || result == refused {
		return nil, fmt.Errorf("creating the cluster: %d, %w", result, err)
	}
	newest, ok := w.region.catalog.Newest(w.minor, "stable")
	if !ok {
		return nil, fmt.Errorf("the catalogue has no release of %s", w.minor)
	}
	if err := w.region.makeReady(w.t.Context(), document, subscription, newest.Version.String()); err != nil {
		return nil, err
	}
	w.parent = &parent{document: document, subscription: subscription}
	return w.parent, nil
}

func (w *worker) nodePool(body []byte) (outcome, error) {
	cluster, err := w.parentCluster()
	if err != nil {
		return refused, err
	}
	path := fmt.Sprintf("%s/nodePools/pool%d", cluster.document.Cluster.ID, cluster.children)
	result, err := status(w.region.put(path, w.version, of(cluster.subscription, body)))
	if result == refused || err != nil {
		return result, err
	}
	cluster.children++
	document, err := take(w.region.accepted, w.region.accepted.nodePools, path)
	if err != nil {
		return applied, err
	}
	if _, err := w.region.client.ApplyNodePool(w.t.Context(), document); err != nil {
		return applied, err
	}
	return applied, w.region.apply(w.t.Context(), document.ClusterUID, fleet.NodePoolWork, document.UID)
}

func (w *worker) externalAuth(body []byte) (outcome, error) {
	cluster, err := w.parentCluster()
	if err != nil {
		return refused, err
	}
	path := cluster.document.Cluster.ID + "/externalAuths/auth"
	result, err := status(w.region.put(path, w.version, of(cluster.subscription, body)))
	if result == refused || err != nil {
		return result, err
	}
	cluster.children++
	document, err := take(w.region.accepted, w.region.accepted.externalAuths, path)
	if err != nil {
		return applied, err
	}
	if err := w.region.forgetExternalAuth(w.t.Context(), document, cluster.subscription); err != nil {
		return applied, err
	}
	// For Cluster Service it is a change of the external authentication before, of which a cluster has one.
	document.UID, document.Generation = cluster.document.UID, int64(cluster.children)
	if _, err := w.region.client.ApplyExternalAuth(w.t.Context(), document); err != nil {
		return applied, err
	}
	return applied, w.region.apply(w.t.Context(), document.ClusterUID, fleet.HostedCluster, "")
}
