package adminclient

import (
	"context"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
)

// clusterPath returns the path of a cluster, which any identifier names.
func clusterPath(cluster string) string { return "/clusters/" + url.PathEscape(cluster) }

// FindClusters returns the clusters that match an identifier.
func (c *Client) FindClusters(ctx context.Context, text string) ([]adminv1.Cluster, error) {
	list, err := get[adminv1.ClusterList](ctx, c, "/clusters", url.Values{"q": {text}})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// Clusters returns all clusters of the fleet, or of a subscription unless it is empty.
func (c *Client) Clusters(ctx context.Context, subscription string) ([]adminv1.Cluster, error) {
	query := url.Values{"pageSize": {"500"}}
	if subscription != "" {
		query.Set("subscription", subscription)
	}
	all := []adminv1.Cluster{}
	for {
		list, err := get[adminv1.ClusterList](ctx, c, "/clusters", query)
		if err != nil {
			return nil, err
		}
		all = append(all, list.Items...)
		if list.NextPageToken == "" {
			return all, nil
		}
		query.Set("pageToken", list.NextPageToken)
	}
}

// FleetFilter selects clusters of the region. Zero fields select all.
type FleetFilter struct {
	Shard, Version string
	// Phases are phases of Cluster Service, such as Installing. They exclude NotReady.
	Phases []string
	// NotReady selects clusters that are not in their desired state.
	NotReady bool
	// OlderThan and Concerns require NotReady. Concerns are layers, or layers with states as in node-pool/WaitingForNodes.
	OlderThan time.Duration
	Concerns  []string
}

// query returns the parameters of a request for a page.
func (f *FleetFilter) query(pageSize int) url.Values {
	query := url.Values{"pageSize": {strconv.Itoa(pageSize)}}
	for name, value := range map[string]string{"shard": f.Shard, "version": f.Version, "phase": strings.Join(f.Phases, ","), "concern": strings.Join(f.Concerns, ",")} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if f.NotReady {
		query.Set("notReady", "true")
	}
	if f.OlderThan > 0 {
		query.Set("olderThan", f.OlderThan.String())
	}
	return query
}

// FleetClusters returns at most limit clusters of the region, and whether there are more. Of those that are not in their desired state, the ones
// that have waited longest are first.
func (c *Client) FleetClusters(ctx context.Context, filter FleetFilter, limit int) (clusters []adminv1.Cluster, more bool, err error) {
	query := filter.query(min(limit, 500))
	clusters = []adminv1.Cluster{}
	for {
		list, err := get[adminv1.ClusterList](ctx, c, "/clusters", query)
		if err != nil {
			return nil, false, err
		}
		clusters = append(clusters, list.Items...)
		if list.NextPageToken == "" || len(clusters) >= limit {
			return clusters[:min(len(clusters), limit)], list.NextPageToken != "" || len(clusters) > limit, nil
		}
		query.Set("pageToken", list.NextPageToken)
	}
}

// RegionExplanation returns which components of the region are away and what its clusters wait for.
func (c *Client) RegionExplanation(ctx context.Context) (*adminv1.RegionExplanation, error) {
	return get[adminv1.RegionExplanation](ctx, c, "/explanation", nil)
}

// Cluster returns the cluster that an identifier matches.
func (c *Client) Cluster(ctx context.Context, cluster string) (*adminv1.Cluster, error) {
	return get[adminv1.Cluster](ctx, c, clusterPath(cluster), nil)
}

// Dump returns what every layer holds of a cluster, without secrets.
func (c *Client) Dump(ctx context.Context, cluster string) (*adminv1.Dump, error) {
	return get[adminv1.Dump](ctx, c, clusterPath(cluster)+"/dump", nil)
}

// ClusterStatus returns the progress of a cluster in each layer, and its conditions.
func (c *Client) ClusterStatus(ctx context.Context, cluster string) (*adminv1.ClusterStatus, error) {
	return get[adminv1.ClusterStatus](ctx, c, clusterPath(cluster)+"/status", nil)
}

// Journal returns the state of a cluster's API and its transitions.
func (c *Client) Journal(ctx context.Context, cluster string) (*adminv1.Journal, error) {
	return get[adminv1.Journal](ctx, c, clusterPath(cluster)+"/journal", nil)
}

// Timeline returns what happened to a cluster within a period. A zero time selects the default of admin.
func (c *Client) Timeline(ctx context.Context, cluster string, from, to time.Time) (*adminv1.Timeline, error) {
	query := url.Values{}
	for name, value := range map[string]time.Time{"from": from, "to": to} {
		if !value.IsZero() {
			query.Set(name, value.UTC().Format(time.RFC3339))
		}
	}
	return get[adminv1.Timeline](ctx, c, clusterPath(cluster)+"/timeline", query)
}

// Explanation returns what a cluster and its children wait for.
func (c *Client) Explanation(ctx context.Context, cluster string) (*adminv1.Explanation, error) {
	return get[adminv1.Explanation](ctx, c, clusterPath(cluster)+"/explanation", nil)
}
