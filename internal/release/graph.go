package release

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Graph is an update graph of the Cincinnati protocol (GET …/v1/graph): the releases of one channel and architecture as nodes,
// the upgrade edges between them by index of the nodes, and the edges with risks by version.
type Graph struct {
	Version          int               `json:"version"`
	Nodes            []Node            `json:"nodes"`
	Edges            [][2]int          `json:"edges"`
	ConditionalEdges []ConditionalEdge `json:"conditionalEdges"`
}

// Node is a release.
type Node struct {
	Version  string            `json:"version"`
	Payload  string            `json:"payload"`
	Metadata map[string]string `json:"metadata"`
}

// Keys of the metadata of nodes that are served and read.
const (
	metadataChannels = "io.openshift.upgrades.graph.release.channels"
	metadataDigest   = "io.openshift.upgrades.graph.release.manifestref"
	metadataArch     = "release.openshift.io/architecture"
	metadataURL      = "url"
)

// ConditionalEdge is a group of edges with the same risks.
type ConditionalEdge struct {
	Edges []VersionEdge `json:"edges"`
	Risks []GraphRisk   `json:"risks"`
}

// VersionEdge is an edge between two versions.
type VersionEdge struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// GraphRisk is a Risk in a Graph.
type GraphRisk struct {
	URL           string         `json:"url"`
	Name          string         `json:"name"`
	Message       string         `json:"message"`
	MatchingRules []MatchingRule `json:"matchingRules"`
}

// MatchingRule is a Rule in a Graph.
type MatchingRule struct {
	Type   string      `json:"type"`
	PromQL *PromQLRule `json:"promql,omitempty"`
}

// PromQLRule is a query in a MatchingRule.
type PromQLRule struct {
	PromQL string `json:"promql"`
}

// Architectures are the architectures of graphs. A payload for several architectures is in the graph of multi and in the graph
// of each architecture.
var Architectures = []string{"amd64", "arm64", "multi"}

// Serves reports whether a release has a payload for an architecture of the protocol.
func (r *Release) Serves(arch string) bool {
	return r.Architecture == "Multi" || strings.EqualFold(r.Architecture, arch)
}

// Graph returns the update graph of a channel for an architecture. A channel without releases has an empty graph.
func (c *Catalog) Graph(channel, arch string) *Graph {
	g := &Graph{Version: 1, Nodes: []Node{}, Edges: [][2]int{}, ConditionalEdges: []ConditionalEdge{}}
	indexes := map[Version]int{}
	for _, r := range c.releases {
		if !r.In(channel) || !r.Serves(arch) {
			continue
		}
		indexes[r.Version] = len(g.Nodes)
		metadata := map[string]string{metadataChannels: strings.Join(r.Channels, ","), metadataDigest: r.Digest}
		if r.Architecture == "Multi" {
			metadata[metadataArch] = "multi"
		}
		if r.URL != "" {
			metadata[metadataURL] = r.URL
		}
		g.Nodes = append(g.Nodes, Node{Version: r.Version.String(), Payload: r.Image, Metadata: metadata})
	}
	for between, e := range c.edges {
		from, known := indexes[between.from]
		to, toKnown := indexes[between.to]
		switch {
		case !known || !toKnown:
		case len(e.risks) == 0:
			g.Edges = append(g.Edges, [2]int{from, to})
		default:
			g.ConditionalEdges = append(g.ConditionalEdges, ConditionalEdge{Edges: []VersionEdge{{between.from.String(), between.to.String()}}, Risks: graphRisks(e.risks)})
		}
	}
	slices.SortFunc(g.Edges, func(a, b [2]int) int { return slices.Compare(a[:], b[:]) })
	slices.SortFunc(g.ConditionalEdges, func(a, b ConditionalEdge) int {
		x, y := a.Edges[0], b.Edges[0]
		return slices.Compare([]int{indexes[must(x.To)], indexes[must(x.From)]}, []int{indexes[must(y.To)], indexes[must(y.From)]})
	})
	return g
}

// must parses the text of a Version.
func must(s string) Version {
	v, _ := ParseVersion(s)
	return v
}

func graphRisks(risks []Risk) []GraphRisk {
	var list []GraphRisk
	for _, r := range risks {
		g := GraphRisk{URL: r.URL, Name: r.Name, Message: r.Message}
		for _, rule := range r.Rules {
			m := MatchingRule{Type: rule.Type}
			if rule.Type == "PromQL" {
				m.PromQL = &PromQLRule{PromQL: rule.PromQL}
			}
			g.MatchingRules = append(g.MatchingRules, m)
		}
		list = append(list, g)
	}
	return list
}

// ParseGraph reads a served graph. Edges must refer to existing nodes. Unknown fields are ignored, as the protocol requires.
func ParseGraph(text []byte) (*Graph, error) {
	var g Graph
	if err := json.Unmarshal(text, &g); err != nil {
		return nil, fmt.Errorf("read an update graph: %w", err)
	}
	for i, e := range g.Edges {
		if min(e[0], e[1]) < 0 || max(e[0], e[1]) >= len(g.Nodes) {
			return nil, fmt.Errorf("read an update graph: edges[%d] refers to a node that does not exist", i)
		}
	}
	return &g, nil
}

// FromGraphs returns the catalogue of the graphs of several channels. It leaves out releases whose version is not
// MAJOR.MINOR.PATCH, such as nightly builds, with their edges. Graphs have no EndOfLife and no Kubelet.
func FromGraphs(graphs map[string]*Graph) (*Catalog, error) {
	c := &Catalog{edges: map[between]*edge{}}
	known := map[Version]*Release{}
	for channel, g := range graphs {
		for _, n := range g.Nodes {
			v, err := ParseVersion(n.Version)
			if err != nil {
				continue
			}
			_, digest, byDigest := strings.Cut(n.Payload, "@")
			if !byDigest || !digestPattern.MatchString(digest) {
				return nil, fmt.Errorf("the payload of release %s in channel %s has no digest", n.Version, channel)
			}
			if r := known[v]; r != nil {
				if r.Digest != digest {
					return nil, fmt.Errorf("release %s has two payloads", n.Version)
				}
				if !r.In(channel) {
					r.Channels = append(r.Channels, channel)
					slices.Sort(r.Channels)
				}
				continue
			}
			r := &Release{Version: v, Digest: digest, Image: n.Payload, Architecture: "AMD64", Channels: []string{channel}, URL: n.Metadata[metadataURL]}
			if n.Metadata[metadataArch] == "multi" {
				r.Architecture = "Multi"
			}
			known[v] = r
			c.releases = append(c.releases, r)
		}
		c.connectGraph(g)
	}
	if len(c.releases) == 0 {
		return nil, errors.New("the update graph has no release")
	}
	slices.SortFunc(c.releases, func(a, b *Release) int { return a.Version.Compare(b.Version) })
	return c, nil
}

// connectGraph adds the edges of a graph. An edge with a risk in one channel has the risk in all channels.
func (c *Catalog) connectGraph(g *Graph) {
	for _, e := range g.Edges {
		from, err := ParseVersion(g.Nodes[e[0]].Version)
		to, toErr := ParseVersion(g.Nodes[e[1]].Version)
		if err == nil && toErr == nil && from.Compare(to) < 0 && c.edges[between{from, to}] == nil {
			c.edges[between{from, to}] = &edge{}
		}
	}
	for _, conditional := range g.ConditionalEdges {
		var risks []Risk
		for _, r := range conditional.Risks {
			risk := Risk{Name: r.Name, URL: r.URL, Message: r.Message}
			for _, m := range r.MatchingRules {
				rule := Rule{Type: m.Type}
				if m.PromQL != nil {
					rule.PromQL = m.PromQL.PromQL
				}
				risk.Rules = append(risk.Rules, rule)
			}
			risks = append(risks, risk)
		}
		for _, e := range conditional.Edges {
			from, err := ParseVersion(e.From)
			to, toErr := ParseVersion(e.To)
			if err == nil && toErr == nil && from.Compare(to) < 0 && len(risks) > 0 {
				c.edges[between{from, to}] = &edge{risks: risks}
			}
		}
	}
}

// Mentioned returns the channels that the metadata of the releases mention, sorted and without duplicates.
func (g *Graph) Mentioned() []string {
	var channels []string
	for _, n := range g.Nodes {
		for channel := range strings.SplitSeq(n.Metadata[metadataChannels], ",") {
			if channelPattern.MatchString(channel) {
				channels = append(channels, channel)
			}
		}
	}
	slices.Sort(channels)
	return slices.Compact(channels)
}
