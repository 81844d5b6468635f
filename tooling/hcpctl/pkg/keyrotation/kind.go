// Package keyrotation replaces the key of a keyset by a new one while the processes that use the keyset run. It adds a key, waits until
// all replicas have read it, makes it the primary key, waits until nothing needs the former key, and removes that. The metrics of the
// replicas show what they have read and what they still need.
//
// A rotation is recorded beside the keyset before it changes anything, so that an interrupted one continues where it ended. No step
// removes or promotes a key on which a replica does not agree.
package keyrotation

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Kind is a kind of keyset.
type Kind struct {
	Name string
	// Service is the service whose replicas read the keyset from the file of Flag, and Others are services whose metrics the rotation
	// reads too.
	Service, Flag string
	Others        []string
	// Needed is how long values that the former key sealed or signed can be in use after the last replica has stopped to use it; 0 if
	// progress reports that.
	Needed time.Duration
	// Public is true if a public keyset belongs to the keyset, and PerShard if each provision shard has a keyset of its own.
	Public, PerShard bool
	// Verifiers are the services whose replicas verify with the public keyset in the file of VerifierFlag. The new key signs nothing before they have it. Each
	// region has the first; it may have no others.
	Verifiers    []string
	VerifierFlag string
	// progress reports how many values need the former key.
	progress func(ctx context.Context, r *Rotation, former, next string) (Progress, error)
}

// Kinds returns all kinds.
func Kinds() []Kind {
	return []Kind{
		{Name: "signing-keys", Service: "cluster-service", Flag: "secrets-key-file", Others: []string{"backend"}, progress: signingKeys},
		{Name: "credentials", Service: "frontend", Flag: "credential-key-file", Needed: 24 * time.Hour},
		{Name: "skip-tokens", Service: "frontend", Flag: "skip-token-key-file", Needed: 24 * time.Hour},
		// The keys sign intents, which are valid for an hour, and elevations: a day until they are activated, then 8 hours. Admin signs the intents of egress links
		// again within an hour.
		{Name: "intents", Service: "admin", Flag: "intent-key-file", Needed: 32 * time.Hour,
			Public: true, Verifiers: []string{"gateway-tunnel", "gateway-egress"}, VerifierFlag: "intent-keys-file"},
		{Name: "agent", Service: "maestro-agent", Flag: "secrets-key-file", Others: []string{"cluster-service"}, Public: true, PerShard: true, progress: agent},
	}
}

// KindOf returns the kind with a name.
func KindOf(name string) (Kind, error) {
	var names []string
	for _, kind := range Kinds() {
		if kind.Name == name {
			return kind, nil
		}
		names = append(names, kind.Name)
	}
	names = append(names, Audit)
	return Kind{}, fmt.Errorf("KIND: %q is not a kind of keyset: use one of %s", name, strings.Join(names, ", "))
}

// Progress is how far the replacement of a key is.
type Progress struct {
	// Left of Total values need the former key. Total is 0 if they are not counted.
	Left, Total int
	// Done is true if the former key can be removed. Waiting states what the rotation waits for otherwise.
	Done    bool
	Waiting string
}

// signingKeys reads the progress of Cluster Service, which seals the signing keys of clusters again. The backend copies them afterwards.
func signingKeys(ctx context.Context, r *Rotation, _, next string) (Progress, error) {
	p := Progress{Done: true}
	for _, url := range r.Replicas["cluster-service"] {
		metrics, err := r.scrape(ctx, url)
		if err != nil {
			return p, err
		}
		left, _ := metrics.value("cluster_service_signing_keys_to_reseal", nil)
		total, _ := metrics.value("cluster_service_signing_keys", nil)
		p.Left, p.Total = max(p.Left, int(left)), max(p.Total, int(total))
		passes, _ := metrics.value("cluster_service_reseal_passes", labels{"key": next})
		switch {
		case left > 0 || passes == 0:
			p.Done, p.Waiting = false, "Cluster Service seals signing keys again"
		case passes < 2 && p.Done:
			p.Done, p.Waiting = false, "Cluster Service searches a second time for signing keys that the former key sealed (--reseal-again-after)"
		}
	}
	if !p.Done {
		return p, nil
	}
	for _, url := range r.Replicas["backend"] {
		metrics, err := r.scrape(ctx, url)
		if err != nil {
			return p, err
		}
		if queued, ok := metrics.value("backend_resources_queued", nil); !ok || queued > 0 {
			p.Done, p.Waiting = false, fmt.Sprintf("the backend copies the signing keys: %d resources are queued", int(queued))
		}
	}
	return p, nil
}

// agent reads whether Cluster Service has sealed the Secrets of all clusters of a management cluster with the new key, and whether the
// agent has them.
func agent(ctx context.Context, r *Rotation, former, next string) (Progress, error) {
	p := Progress{Done: true}
	for _, url := range r.Replicas["maestro-agent"] {
		metrics, err := r.scrape(ctx, url)
		if err != nil {
			return p, err
		}
		left, _ := metrics.value("maestro_agent_sealed_secrets", labels{"key": former})
		with, _ := metrics.value("maestro_agent_sealed_secrets", labels{"key": next})
		p.Left, p.Total = p.Left+int(left), p.Total+int(left+with)
		if left > 0 {
			p.Done, p.Waiting = false, "the works of clusters are rendered again and delivered"
		}
	}
	for _, url := range r.Replicas["cluster-service"] {
		metrics, err := r.scrape(ctx, url)
		if err != nil {
			return p, err
		}
		if renewed, _ := metrics.value("cluster_service_shard_key_renewed", labels{"shard": r.Shard, "key": next}); renewed != 1 {
			p.Done, p.Waiting = false, "Cluster Service renders the works of all clusters of "+r.Shard+" again"
		}
	}
	return p, nil
}
