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

// Identifiers select clusters by the identifiers that people use; case is ignored. A cluster must match all that are not
// empty. Each identifier has an index, so the cost of a search grows with its results and not with the fleet.
type Identifiers struct {
	ResourceID, ResourceIDPrefix, Subscription string
	Name, NamePrefix                           string
	ClusterID, BaseDomainPrefix                string
	// APIHost is a host name or an address, with or without a port.
	APIHost string
}

// lastRune sorts after every other rune by bytes. A prefix followed by it is the end of the range of strings with the
// prefix.
const lastRune = "\U0010FFFF"

// where adds the conditions, each with a %d for the number of its argument.
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

// splitHost returns the host without the brackets of an IPv6 address, and the port, which may be empty.
func splitHost(text string) (host, port string) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return strings.Trim(text, "[]"), ""
	}
	return host, port
}

// identifiersChanged reports whether the identifiers of a cluster changed.
func identifiersChanged(a, b *fleet.Cluster) bool {
	return a == nil || a.Status.GetClusterId() != b.Status.GetClusterId() || a.Status.GetApiUrl() != b.Status.GetApiUrl() ||
		a.Status.GetBaseDomainPrefix() != b.Status.GetBaseDomainPrefix()
}

// queueIdentifiers queues the write of a cluster's identifiers. The row of the cluster must exist.
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

// identifyPage is the number of clusters in one round of identify.
const identifyPage = 500

// identify writes the identifiers of clusters that an earlier release wrote without them.
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
