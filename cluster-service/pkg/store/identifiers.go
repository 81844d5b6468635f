package store

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
)

// Identifiers choose clusters by what people know them by, in any casing. A cluster must match all that are not empty. Each
// has an index: what a search reads grows with what it finds, and not with the fleet.
type Identifiers struct {
	ResourceID, ResourceIDPrefix, Subscription string
	Name, NamePrefix                           string
	ClusterID, BaseDomainPrefix                string
	// APIHost is a host name or an address, with or without a port.
	APIHost string
}

// lastRune is behind every other in a text's bytes: a prefix with it is the end of the range of what the prefix begins.
const lastRune = "\U0010FFFF"

// where adds what chooses, each with a %d for the number of its argument.
func (i Identifiers) where(add func(condition, arg string)) {
	host, port := splitHost(i.APIHost)
	for _, e := range []struct{ condition, value, suffix string }{
		{"resource_key = $%d", i.ResourceID, ""},
		{"resource_key >= $%d", i.ResourceIDPrefix, ""},
		{"resource_key < $%d", i.ResourceIDPrefix, lastRune},
		{"subscription = $%d", i.Subscription, ""},
		{"name = $%d", i.Name, ""},
		{"name >= $%d", i.NamePrefix, ""},
		{"name < $%d", i.NamePrefix, lastRune},
		{"cluster_id = $%d", i.ClusterID, ""},
		{"prefix = $%d", i.BaseDomainPrefix, ""},
		{"api_host = $%d", host, ""},
		{"api_port = $%d", port, ""},
	} {
		if e.value != "" {
			add(e.condition, strings.ToLower(e.value)+e.suffix)
		}
	}
}

// splitHost is a host without the brackets of an IPv6 address, and the port, which may be missing.
func splitHost(text string) (host, port string) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return strings.Trim(text, "[]"), ""
	}
	return host, port
}

// identifiersChanged says whether a cluster is to be found by other identifiers than before.
func identifiersChanged(a, b *fleet.Cluster) bool {
	return a == nil || a.Status.GetClusterId() != b.Status.GetClusterId() || a.Status.GetApiUrl() != b.Status.GetApiUrl() ||
		a.Status.GetBaseDomainPrefix() != b.Status.GetBaseDomainPrefix()
}

// queueIdentifiers writes a cluster's, whose own row is there.
func queueIdentifiers(batch *pgx.Batch, c *fleet.Cluster) {
	host, port := "", ""
	if u, err := url.Parse(c.Status.GetApiUrl()); err == nil {
		host, port = u.Hostname(), u.Port()
		if port == "" && host != "" {
			port = "443"
		}
	}
	batch.Queue(`INSERT INTO cluster_identifiers (cluster_uid, resource_key, cluster_id, prefix, api_host, api_port) VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (cluster_uid) DO UPDATE SET cluster_id = $3, prefix = $4, api_host = $5, api_port = $6`,
		c.UID, strings.ToLower(c.ResourceID), strings.ToLower(c.Status.GetClusterId()), strings.ToLower(c.Status.GetBaseDomainPrefix()), strings.ToLower(host), port)
}

// identifyPage is how many clusters are given their identifiers at a time.
const identifyPage = 500

// identify gives the clusters their identifiers that another release wrote, which knew of none.
func identify(ctx context.Context, tx pgx.Tx) error {
	for {
		rows, err := tx.Query(ctx, "SELECT "+clusterColumns+" FROM clusters WHERE NOT EXISTS (SELECT FROM cluster_identifiers WHERE cluster_uid = uid) LIMIT $1", identifyPage)
		if err != nil {
			return fmt.Errorf("reading clusters without identifiers: %w", err)
		}
		clusters, err := pgx.CollectRows(rows, scanCluster)
		if err != nil {
			return fmt.Errorf("reading clusters without identifiers: %w", err)
		}
		if len(clusters) == 0 {
			return nil
		}
		batch := &pgx.Batch{}
		for _, c := range clusters {
			queueIdentifiers(batch, c)
		}
		if err := tx.SendBatch(ctx, batch).Close(); err != nil {
			return fmt.Errorf("writing identifiers: %w", err)
		}
	}
}
